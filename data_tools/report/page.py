"""report.html from the data of report.json: one file that asks nothing of a network."""

from collections.abc import Callable, Mapping
from typing import Any

from data_tools.report import corpus, losses, training
from data_tools.report.markup import Markup, classed, element, join
from data_tools.report.style import STYLE
from data_tools.report.tables import count, share, size

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser fetches nothing and runs nothing, whatever a text may contain."""

SECTIONS: dict[str, Callable[[Mapping[str, Any]], Markup]] = {
    "Funnel": losses.funnel,
    "Sources": corpus.sources,
    "Rules, side by side": losses.rules,
    "Length and quality": corpus.histograms,
    "Boilerplate": losses.boilerplate,
    "Privacy": losses.privacy,
    "Evaluation sets": losses.evaluation,
    "Duplicates": losses.duplicates,
    "Bad input": losses.bad_input,
    "Held out": training.heldout,
    "Tokenizer": training.tokenizer,
    "Shards": training.shards,
    "Mixture": training.mixture,
    "Throughput": corpus.throughput,
    "Recipe": corpus.recipe,
}
"""Heading -> what stands under it, in order."""


def page(data: Mapping[str, Any]) -> str:
    """The whole page."""
    anchors = {title: f"section-{i}" for i, title in enumerate(SECTIONS)}
    links = [element("a", t, attributes={"href": f"#{a}"}) for t, a in anchors.items()]
    body = [element("h1", "What became of the text"), _tiles(data), _notes(data)]
    body.append(element("nav", *links))
    for title, write in SECTIONS.items():
        body += [element("h2", title, attributes={"id": anchors[title]}), write(data)]
    head = join(
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width">'),
        element("title", "Data report"),
        element("style", Markup(STYLE)),
    )
    whole = join(element("head", head), element("body", *body))
    return "<!doctype html>" + element("html", whole, attributes={"lang": "en"}) + "\n"


def _tiles(data: Mapping[str, Any]) -> Markup:
    counts = data["sources"].values()
    read, kept, tokens = (sum(c[k] for c in counts) for k in ("documents", "kept", "tokens"))
    read_bytes, kept_bytes = (sum(c[k] for c in counts) for k in ("text_bytes", "kept_text_bytes"))
    held = sum(c["heldout"]["documents"] for c in counts)
    bad = sum(sum(c["bad"].values()) for c in counts)
    copies = data["duplicates"]["documents"]
    tiles = (
        (count(kept), f"documents kept, {share(kept, read)} of {count(read)}"),
        (size(kept_bytes), f"of text kept, {share(kept_bytes, read_bytes)} of {size(read_bytes)}"),
        (count(tokens), f"tokens, {kept_bytes / max(tokens, 1):.2f} bytes each"),
        (count(copies), f"copies removed, {share(copies, read)} of what was read"),
        (count(held), f"documents held out, {share(held, kept)} of the kept"),
        (count(bad), "bad records and files"),
    )
    written = (
        classed("div", "tile", element("b", big), element("span", small)) for big, small in tiles
    )
    return classed("div", "tiles", *written)


def _notes(data: Mapping[str, Any]) -> Markup:
    alarms = [classed("li", "alarm", alarm) for alarm in data["alarms"]]
    notes = [element("li", note) for note in data["notes"]]
    return classed("div", "notes", element("ul", *alarms, *notes)) if alarms or notes else Markup()
