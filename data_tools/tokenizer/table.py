"""The tables of `tokenizer evaluate`, from its data, in Markdown and HTML."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_tools.report.markup import Markup, element, join
from data_tools.report.page import POLICY
from data_tools.report.style import STYLE
from data_tools.report.tables import Figure, count, size, table
from data_tools.tokenizer.fertility import KINDS, SHORT

type Data = Mapping[str, Any]
type Cells = Mapping[str, object]

TITLE = "The tokenizer on held-out text"
NONE = Figure("-")
"""What cannot be measured."""


@dataclass(frozen=True)
class Section:
    """A table under a heading."""

    title: str
    words: str
    rows: Sequence[Cells]


def markdown(data: Data) -> str:
    """The tables as Markdown."""
    lines = [f"# {TITLE}", "", summary(data)]
    for section in sections(data):
        lines += ["", f"## {section.title}", "", section.words, "", *_pipes(section.rows)]
    return "\n".join(lines) + "\n"


def page(data: Data) -> str:
    """The tables as one page that asks nothing of a network."""
    body = [element("h1", TITLE), element("p", summary(data))]
    for section in sections(data):
        body += [element("h2", section.title), element("p", section.words), table(section.rows)]
    head = join(
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width">'),
        element("title", TITLE),
        element("style", Markup(STYLE)),
    )
    whole = join(element("head", head), element("body", *body))
    return "<!doctype html>" + element("html", whole, attributes={"lang": "en"}) + "\n"


def summary(data: Data) -> str:
    """Which tokenizer, and whether it passes the checks."""
    checks = data["checks"]
    coverage = checks["chinese_coverage"]
    least = f"{checks['least_coverage']:.1%}"
    chinese = (
        "Coverage of Chinese text is not known: none is held out, or its tokens cannot be placed."
        if coverage is None
        else f"Coverage of Chinese text: {coverage:.3%}, at least {least} wanted."
    )
    faults = " ".join(f"FAILED: {fault}." for fault in checks["faults"])
    return (
        f"Identity of the corpus's tokenizer: {data['tokenizer_hash']}. {chinese} {faults}".strip()
    )


def sections(data: Data) -> Iterator[Section]:
    """The tables in order."""
    yield Section("Tokenizers", _words_of_tokenizers(data), list(_tokenizers(data)))
    yield Section("Held-out text", _words_of_rows(data), list(_rows(data)))
    yield Section(
        "Characters per token", "More is better.", _by_row(data, "characters_per_token", "{:.2f}")
    )
    yield Section("Bytes per token", "Of UTF-8.", _by_row(data, "bytes_per_token", "{:.2f}"))
    yield Section(
        "Coverage",
        "Share of the characters that lie whole in one known token: those that the vocabulary has "
        "no piece for are spread over bytes, or lost.",
        _by_row(data, "coverage", "{:.3%}"),
    )
    yield Section(
        "Tokens per identifier, number and line start",
        "Where they stand. Of identifiers (in code; comments and strings too) and numbers every "
        "token counts that has a part of them; of a line's start, a newline with the indentation "
        "behind it, those that lie in it.",
        _by_kind(data, lambda f: Figure(f"{f['tokens'] / f['units']:.2f}")),
    )
    yield Section(
        f"Share with at most {SHORT} tokens",
        "Of the same.",
        _by_kind(data, lambda f: Figure(f"{f['short'] / f['units']:.1%}")),
    )


def _words_of_tokenizers(data: Data) -> str:
    documents = sum(row["documents"] for row in data["rows"].values())
    return f"Speed is that of encoding, on one thread. Held out are {documents:,} documents."


def _tokenizers(data: Data) -> Iterator[Cells]:
    for name, found in data["tokenizers"].items():
        failed = sum(row["failed"] for row in found["rows"].values())
        examples = [row["example"] for row in found["rows"].values() if row["example"]]
        remarks = [data["notes"].get(name, ""), *examples[:1]]
        yield {
            "tokenizer": name,
            "pieces": count(found["vocab_size"]),
            "MB/s": Figure(f"{found['mb_per_s']:.1f}"),
            "documents not given back": count(failed),
            "remarks": "; ".join(r for r in remarks if r),
        }
    for name, why in data["refused"].items():
        yield {
            "tokenizer": name,
            "pieces": NONE,
            "MB/s": NONE,
            "documents not given back": NONE,
            "remarks": f"refused: {why}",
        }


def _words_of_rows(data: Data) -> str:
    missing = data["missing"]
    return (
        f"No text is held out of these types: {', '.join(missing)}."
        if missing
        else "Every type of the recipe has some."
    )


def _rows(data: Data) -> Iterator[Cells]:
    for name, row in data["rows"].items():
        yield {
            "text": name,
            "documents": count(row["documents"]),
            "characters": count(row["characters"]),
            "UTF-8": size(row["bytes"]),
        }


def _by_row(data: Data, key: str, form: str) -> list[Cells]:
    def cell(figures: Data) -> Figure:
        if key == "coverage":
            spanned = figures["spanned"]
            return Figure(form.format(figures["covered"] / spanned)) if spanned else NONE
        return Figure(form.format(figures[key]))

    tokenizers = data["tokenizers"].items()
    return [
        {"text": row} | {name: cell(found["rows"][row]) for name, found in tokenizers}
        for row in data["rows"]
    ]


def _by_kind(data: Data, form: Any) -> list[Cells]:
    found = {name: t["fertility"] for name, t in data["tokenizers"].items()}
    units = {k: max((f[k]["units"] for f in found.values() if k in f), default=0) for k in KINDS}
    return [
        {"kind": kind, "found": count(units[kind])}
        | {name: form(f[kind]) if kind in f else NONE for name, f in found.items()}
        for kind in KINDS
        if units[kind]
    ]


def _pipes(rows: Sequence[Cells]) -> Iterator[str]:
    if not rows:
        yield "None."
        return
    names = list(rows[0])
    yield _pipe(names)
    yield _pipe(["---:" if isinstance(rows[0][n], Figure) else "---" for n in names])
    for row in rows:
        yield _pipe([str(row[name]) for name in names])


def _pipe(cells: Sequence[str]) -> str:
    escaped = [" ".join(c.replace("|", "\\|").split()) for c in cells]
    return "| " + " | ".join(escaped) + " |"
