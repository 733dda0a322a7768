"""Sections of the page about what did not stay, and why."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.report.funnel import overall
from data_tools.report.gather import BAD_PLACES, BOILERPLATE_LINES
from data_tools.report.markup import Markup, classed, element, join
from data_tools.report.plots import Bar, bars, columns
from data_tools.report.tables import Figure, count, share, size, table
from data_tools.samples import SAMPLES
from data_tools.tally import length_bins

type Data = Mapping[str, Any]


def funnel(data: Data) -> Markup:
    """What each step left and took, of all sources, then of each."""
    steps = overall(data["funnels"])
    return join(
        bars("Documents left after each step", [_documents(s) for s in steps if not s["edit"]]),
        bars("Text left after each step", [_bytes(s) for s in steps]),
        element("h3", "Documents lost, by source"),
        _losses(data["funnels"], "documents"),
        element("h3", "Bytes lost, by source"),
        _losses(data["funnels"], "text_bytes"),
    )


def _documents(step: Data) -> Bar:
    kept, lost = step["documents"], step["lost_documents"]
    parts = [("kept", kept), ("lost", lost)]
    return Bar(step["step"], parts, f"{kept:,}" + (f" (−{lost:,})" if lost else ""))


def _bytes(step: Data) -> Bar:
    kept, lost = step["text_bytes"], step["lost_bytes"]
    change = f" ({'−' if lost > 0 else '+'}{size(abs(lost))})" if lost else ""
    return Bar(step["step"], [("kept", kept), ("lost", max(lost, 0))], size(kept) + change)


def _losses(funnels: Data, key: str) -> Markup:
    """A row a step, a column a source: what was lost there, and its share of what was read."""
    lost = "lost_documents" if key == "documents" else "lost_bytes"
    write = count if key == "documents" else size
    rows = []
    for steps in zip(*funnels.values(), strict=True):
        if not any(step[lost] for step in steps):
            continue
        row: dict[str, object] = {"step": steps[0]["step"]}
        for source, step in zip(funnels, steps, strict=True):
            of = share(step[lost], funnels[source][0][key])
            row[source] = Figure(f"{write(step[lost])} · {of}" if step[lost] else "")
        rows.append(row)
    return table(rows)


def rules(data: Data) -> Markup:
    """For each rule, documents that it dropped beside kept ones of the same sources."""
    if not data["samples"]:
        return element("p", "No document was dropped.")
    lost: Counter[str] = Counter()  # a copy of held-out text may go in two steps
    for step in overall(data["funnels"]):
        lost[step["step"]] += step["lost_documents"]
    read = sum(c["documents"] for c in data["sources"].values())
    intro = element(
        "p",
        "Left what a rule dropped, right what stayed of the same sources: the "
        f"{SAMPLES} with the smallest hashes, chosen by nobody; ",
        element("code", "dropped/*/dropped.parquet"),
        " has all. Private data is masked. To keep one after all, add its id to ",
        element("code", "restored"),
        " in the recipe; ",
        element("code", "python -m data_tools explain ID --workdir=DIR"),
        " tells all that is known of it.",
    )
    ordered = [rule for rule in lost if rule in data["samples"]]
    shown = [_rule(r, data["samples"][r], lost[r], read, r == ordered[0]) for r in ordered]
    return join(intro, *shown)


def _rule(rule: str, sides: Data, lost: int, read: int, unfolded: bool) -> Markup:
    words = f" {count(lost)} documents, {share(lost, read)} of all"
    heading = element("summary", element("b", rule), classed("span", "soft", words))
    both = (element("div", element("h3", name), *map(_sample, sides[name])) for name in sides)
    folding = {"open": "open"} if unfolded else None
    return element("details", heading, classed("div", "sides", *both), attributes=folding)


def _sample(row: Data) -> Markup:
    place = f"{row['source']} · {row['path']} · {row['offset']}"
    return classed(
        "div",
        "sample",
        classed("div", "why", row["detail"]) if "detail" in row else "",
        classed("div", "place", place),
        classed("div", "place", element("code", row["id"])),
        classed("div", "excerpt", row["excerpt"]),
    )


def boilerplate(data: Data) -> Markup:
    """The most frequent lines that were found."""
    found = data["boilerplate"]
    if not found["types"]:
        return element("p", "The recipe looks for boilerplate in no type of source.")
    words = (
        f"Looked for in sources of type {', '.join(found['types'])}: {count(found['found'])} lines "
        f"were found by counting, and {count(found['removed'])} places of them and of known "
        "patterns were taken out of documents."
    )
    rows = [
        {
            "line": line["text"],
            "documents": line["documents"],
            "sites": line["sites"],
            "most on": line["top_site"],
            "removed": "everywhere" if line["everywhere"] else "from its sites",
        }
        for line in found["lines"]
    ]
    if not rows:
        return element("p", words)
    head = element("h3", f"The {BOILERPLATE_LINES} most frequent lines, in their normal form")
    return join(element("p", words), head, table(rows))


def privacy(data: Data) -> Markup:
    """What was found, by type, and what the policy did with it."""
    found = data["privacy"]
    sums: Counter[str] = Counter()
    for row in found["entities"]:
        sums[f"{row['type']}, {row['policy']}"] += row["found"]
    spans = [Bar(label, [("found", n)], count(n)) for label, n in sums.most_common()]
    model = (
        "No named-entity model is configured: names of persons, places and organisations are not "
        "looked for."
        if found["ner"] == "none"
        else f"Names are found by {found['ner']}."
    )
    return join(
        element("p", model),
        bars("Private data, by type and policy", spans) if spans else "",
        table(found["entities"]),
    )


def evaluation(data: Data) -> Markup:
    """What was found of the evaluation sets."""
    if not data["evaluation"]:
        return element("p", "The recipe names no evaluation set to look for.")
    words = "A text that is shorter than one run of words or characters cannot be looked for."
    return join(element("p", words), table(data["evaluation"]))


def duplicates(data: Data) -> Markup:
    """Copies by source, clusters by size, and what dedup is worth."""
    found = data["duplicates"]
    kept = sum(c["tokens"] for c in data["sources"].values())
    worth = (
        f"Dedup gains {found['gain']:.1%} of effective tokens: beside the {count(kept)} that stay, "
        f"there were about {count(found['tokens'])} of copies, which training would have seen in "
        "the place of different text. (An estimate by bytes; exact copies are supposed to pass the "
        "rules as often as other documents do.)"
    )
    rows, losses = [], []
    for name, s in found["sources"].items():
        exact, near, held = s["exact_duplicate"], s["near_duplicate"], s[HELDOUT_DUPLICATE]
        copies = exact + near + held
        left = s["read"] - copies
        parts = [("others", left), ("exact", exact), ("near", near), ("heldout", held)]
        losses.append(Bar(name, parts, f"{share(copies, s['read'])} copies"))
        rows.append(
            {
                "source": name,
                "read": s["read"],
                "exact copies": exact,
                "near copies": near,
                "like held-out text": held,
                "share": share(copies, s["read"]),
                "text": size(s["text_bytes"]),
                "tokens, about": s["tokens"],
            }
        )
    return join(
        element("p", worth),
        bars("Documents read, and the copies among them", losses),
        table(rows),
        _clusters(found["near"]),
    )


def _clusters(near: Data) -> Markup:
    """Near dedup's own account: pairs looked at, clusters by size."""
    words = (
        f"Near dedup looked at {count(near['candidates'])} pairs of documents with a band of their "
        f"signatures in common; {count(near['verified'])} are similar enough by exact comparison, "
        f"{count(near['rejected'])} are not. Crowded bands that were split: "
        f"{count(near['oversized'])}."
    )
    sizes = near["sizes"]
    if not sizes:
        return element("p", words + " There are no clusters.")
    bins = length_bins(sizes)
    title = "Clusters of near duplicates by size (logarithmic)"
    series = {"clusters": [sizes.get(b, 0) for b in bins]}
    return join(
        element("p", words),
        columns(title, bins, series, "documents, from", logarithmic=True),
    )


def bad_input(data: Data) -> Markup:
    """What gave no document: by reason, then file and place."""
    reasons = [
        {"source": name, "reason": reason, "records": n}
        for name, c in data["sources"].items()
        for reason, n in c["bad"].items()
    ]
    places = [{"source": name, **row} for name, rows in data["bad"].items() for row in rows]
    if not reasons:
        return element("p", "Every file could be read, and every record gave a document.")
    head = element("h3", f"Places, {BAD_PLACES} of a source at most")
    where = element("p", "All are in ", element("code", "stages/read/*/bad.parquet"), ".")
    return join(table(reasons), head, where, table(places))
