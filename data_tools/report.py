"""What was kept, what was dropped and why: report.json and a page that needs nothing else."""

import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_tools.recipe import Recipe
from data_tools.source import source_of
from data_tools.stage import StageResult
from jaxlm.schema import to_dict
from jaxlm.workdir import write_json

SAMPLES = 5
"""Samples of each source and rule on the page."""
BAD_PLACES = 50
"""Bad places of a source on the page; stages/read/*/bad.parquet has all."""


def summarize(recipe: Recipe, results: Mapping[str, StageResult]) -> dict[str, Any]:
    """Source -> its counts: documents read, bad, dropped by rule and kept, and tokens."""
    return {source.name: _source_counts(source.name, results) for source in recipe.sources}


def _source_counts(source: str, results: Mapping[str, StageResult]) -> dict[str, Any]:
    read = _reports(results, "read", source)
    kept = _reports(results, "tokenize", source)
    dropped: Counter[str] = Counter()
    for report in (*_reports(results, "clean", source), *kept):
        dropped.update(report["dropped"])
    bad: Counter[str] = Counter()
    for report in read:
        bad.update(report["bad"])
    counts: dict[str, Any] = {
        "files": sum(r["files"] for r in read),
        "documents": sum(r["documents"] for r in read),
        "text_bytes": sum(r["text_bytes"] for r in read),
        "bad": dict(bad),
        "dropped": dict(dropped),
        "kept": sum(r["documents"] for r in kept),
        "kept_text_bytes": sum(r["text_bytes"] for r in kept),
        "tokens": sum(r["tokens"] for r in kept),
    }
    for split in ("train", "heldout"):
        packed = [r for r in _packed(results) if (r["source"], r["split"]) == (source, split)]
        keys = ("documents", "chunks", "tokens", "padding")
        counts[split] = {key: sum(r[key] for r in packed) for key in keys}
        counts[split]["shards"] = len(packed)
    return counts


def _packed(results: Mapping[str, StageResult]) -> list[dict[str, Any]]:
    commits = results["pack"].commits if "pack" in results else ()
    return [c.report for c in commits if c.report["documents"]]


def _reports(results: Mapping[str, StageResult], stage: str, source: str) -> list[dict[str, Any]]:
    """Reports of a stage's partitions of one source; none of a stage that has not run."""
    if stage not in results:
        return []
    return [c.report for c in results[stage].commits if source_of(c.partition) == source]


def write_report(
    workdir: Path, recipe: Recipe, missing: Mapping[str, str], results: Mapping[str, StageResult]
) -> None:
    """Writes report.json and report.html, each whole or not at all."""
    counts = summarize(recipe, results)
    splits = ("train", "heldout") if recipe.heldout.fraction else ("train",)
    data = {
        "sources": counts,
        "missing": dict(missing),
        "notes": _notes(counts, missing, splits),
        "bad": {s: _samples(results, ["read"], s, "bad_samples")[:BAD_PLACES] for s in counts},
        "dropped": {s: _dropped(results, s) for s in counts},
        "tokenizer": results["tokenizer"].commits[0].report,
        "recipe": to_dict(recipe),
    }
    write_json(workdir / "report.json", data)
    temporary = workdir / "report.html.tmp"
    temporary.write_text(_page(data), encoding="utf-8")
    temporary.replace(workdir / "report.html")


def _samples(
    results: Mapping[str, StageResult], stages: list[str], source: str, key: str
) -> list[dict[str, Any]]:
    return [s for stage in stages for r in _reports(results, stage, source) for s in r[key]]


def _dropped(results: Mapping[str, StageResult], source: str) -> list[dict[str, Any]]:
    taken: Counter[str] = Counter()
    kept = []
    for sample in _samples(results, ["clean", "tokenize"], source, "drop_samples"):
        taken[sample["rule"]] += 1
        if taken[sample["rule"]] <= SAMPLES:
            kept.append(sample)
    return kept


def _notes(
    counts: Mapping[str, Any], missing: Mapping[str, str], splits: tuple[str, ...]
) -> list[str]:
    notes = [f"source {name} is left out: {why}" for name, why in missing.items()]
    for name, c in counts.items():
        for split in splits:
            if not c[split]["documents"]:
                notes.append(f"source {name}: no document is in the split {split}")
        if bad := sum(c["bad"].values()):
            notes.append(f"source {name}: {bad} bad records or files gave no document")
    return notes


# ---- the page ------------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 0.5em 0 1.5em } h2 { margin-top: 2em }
th, td { padding: 0.25em 0.8em; border-bottom: 1px solid #ddd; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
td.text { white-space: pre-wrap; overflow-wrap: anywhere; color: #444; font-size: 0.9em }
"""


def _page(data: Mapping[str, Any]) -> str:
    sources = data["sources"]
    body = ["<h1>What became of the text</h1>"]
    body += [f"<p>{html.escape(note)}</p>" for note in data["notes"]]
    body += ["<h2>Sources</h2>", _table([_row(name, c) for name, c in sources.items()])]
    drops = [
        {"source": name, "rule": rule, "documents": n, "share": _share(n, c["documents"])}
        for name, c in sources.items()
        for rule, n in c["dropped"].items()
    ]
    body += ["<h2>Dropped, by rule</h2>", _table(drops)]
    bad = [
        {"source": name, "reason": reason, "records": n}
        for name, c in sources.items()
        for reason, n in c["bad"].items()
    ]
    body += ["<h2>Bad input</h2>", _table(bad)]
    body += [_table([{"source": s, **row} for s, rows in data["bad"].items() for row in rows])]
    body += ["<h2>Samples of what was dropped</h2>"]
    body += [_table([row for rows in data["dropped"].values() for row in rows])]
    tokenizer = data["tokenizer"]
    body += [f"<h2>Tokenizer</h2><p>{tokenizer['vocab_size']} pieces, {tokenizer['hash']}</p>"]
    head = f'<meta charset="utf-8"><title>Data report</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'


def _row(name: str, c: Mapping[str, Any]) -> dict[str, Any]:
    train, held = c["train"], c["heldout"]
    padding = train["padding"] + held["padding"]
    return {
        "source": name,
        "files": c["files"],
        "documents": c["documents"],
        "bad": sum(c["bad"].values()),
        "dropped": sum(c["dropped"].values()),
        "kept": c["kept"],
        "held out": held["documents"],
        "tokens": c["tokens"],
        "bytes a token": f"{c['kept_text_bytes'] / max(c['tokens'], 1):.2f}",
        "chunks": train["chunks"] + held["chunks"],
        "shards": train["shards"] + held["shards"],
        "padding": _share(padding, padding + c["tokens"] + c["kept"]),
    }


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.2%}"


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = ["".join(_cell(value, name) for name, value in row.items()) for row in rows]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: Any, name: str) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    kind = ' class="text"' if name in ("text", "detail") else ""
    return f"<td{kind}>{html.escape(str(value))}</td>"


def lines(workdir: Path) -> Iterator[str]:
    """A line for each source of report.json: what was kept, and what was dropped and why."""
    sources = json.loads((workdir / "report.json").read_text(encoding="utf-8"))["sources"]
    for name, s in sources.items():
        why = ", ".join(f"{rule} {n:,}" for rule, n in {**s["dropped"], **s["bad"]}.items())
        held = s.get("heldout", {}).get("documents", 0)
        yield (
            f"{name}: kept {s['kept']:,} of {s['documents']:,} documents ({why or 'none lost'}), "
            f"{s['tokens']:,} tokens, {held:,} documents held out"
        )
