"""Sections of the page about what stayed, and about the build itself."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from data_tools.report.markup import Markup, element, join
from data_tools.report.plots import Bar, bars, columns
from data_tools.report.summary import total
from data_tools.report.tables import Figure, share, size, table
from data_tools.tally import length_bins, quality_bins

type Data = Mapping[str, Any]


def sources(data: Data) -> Markup:
    """Each source's share of the text that was read, and of the tokens that came out."""
    counts = data["sources"]
    read, tokens = (sum(c[k] for c in counts.values()) for k in ("text_bytes", "tokens"))
    rows = []
    for name, c in counts.items():
        part = share(c["text_bytes"], read)
        rows.append(Bar(name, [("read", c["text_bytes"] / max(read, 1))], part))
        part = share(c["tokens"], tokens)
        rows.append(Bar("", [("kept", c["tokens"] / max(tokens, 1))], part))
    return join(
        bars("Shares of the sources in the text read and in the tokens kept", rows),
        table([_source(name, c) for name, c in counts.items()]),
    )


def _source(name: str, c: Data) -> dict[str, object]:
    return {
        "source": name,
        "files": c["files"],
        "bad": sum(c["bad"].values()),
        "documents": c["documents"],
        "dropped": sum(c["dropped"].values()),
        "kept": c["kept"],
        "kept share": share(c["kept"], c["documents"]),
        "held out": c["heldout"]["documents"],
        "excluded": sum(lost["documents"] for lost in c["excluded"].values()),
        "text kept": size(c["kept_text_bytes"]),
        "tokens": c["tokens"],
    }


def histograms(data: Data) -> Markup:
    """Lengths and, where rules are scored, qualities: kept beside dropped."""
    found = data["histograms"]
    parts = [_lengths("Documents by length", found["lengths"])]
    if found["qualities"]:
        series = _series(found["qualities"])
        parts.append(_histogram("Documents by quality", quality_bins(), series, "quality, from"))
        scored = [rule for rule in data["recipe"]["rules"] if rule["weight"]]
        weights = dict.fromkeys(f"{rule['name']} {rule['weight']:g}" for rule in scored)
        words = (
            f"Sources with scored rules: {', '.join(found['qualities'])}. Quality is the share of "
            f"the weights that a document has earned: {', '.join(weights)}."
        )
        parts.append(element("p", words))
    else:
        parts.append(element("p", "No rule of the recipe is scored: every quality is 1."))
    each = [_lengths(name, {name: here}) for name, here in found["lengths"].items()]
    parts.append(element("details", element("summary", "Lengths by source"), *each))
    return join(*parts)


def _lengths(title: str, by_source: Data) -> Markup:
    series = _series(by_source)
    bins = length_bins(bin for counts in series.values() for bin in counts)
    return _histogram(title, bins, series, "characters, from")


def _series(by_source: Data) -> dict[str, dict[str, int]]:
    """Kept and dropped -> bin -> documents of all these sources."""
    kinds = ("kept", "dropped")
    return {kind: total([here[kind] for here in by_source.values()]) for kind in kinds}


def _histogram(title: str, bins: Sequence[str], series: Data, axis: str) -> Markup:
    values = {kind: [counts.get(b, 0) for b in bins] for kind, counts in series.items()}
    return columns(title, bins, values, axis)


def throughput(data: Data) -> Markup:
    """What each stage read, and how long it took."""
    stages = [s for s in data["throughput"] if s["partitions"]]
    megabytes = sum(c["text_bytes"] for c in data["sources"].values()) / 1e6
    seconds = sum(s["worker_seconds"] for s in stages)
    busy = [
        Bar(s["stage"], [("seconds", s["worker_seconds"])], share(s["worker_seconds"], seconds))
        for s in stages
    ]
    rows = [
        {
            "stage": s["stage"],
            "partitions": s["partitions"],
            "run now": s["ran"],
            "seconds of workers": Figure(f"{s['worker_seconds']:,.1f}"),
            "MB/s a worker": _rate(megabytes, s["worker_seconds"]),
            "seconds now": Figure(f"{s['seconds']:,.1f}"),
        }
        for s in stages
    ]
    words = (
        f"All stages together: {_rate(megabytes, seconds)} MB/s a worker; the recipe asks for "
        f"{data['workers']}. MB are the {megabytes:,.1f} MB of text that were read, for every "
        "stage. Seconds of workers are those of each partition when it ran, in this build or in an "
        "earlier one that it was reused from; seconds now are on the clock, of what ran in this "
        "build."
    )
    return join(element("p", words), bars("Seconds of workers, by stage", busy), table(rows))


def _rate(megabytes: float, seconds: float) -> Figure:
    return Figure(f"{megabytes / max(seconds, 1e-3):,.1f}")


def recipe(data: Data) -> Markup:
    """What was restored, and the recipe itself."""
    restored = data["recipe"]["restored"]
    written = json.dumps(data["recipe"], ensure_ascii=False, indent=1)
    words = "Documents kept against every rule and duplicate: " + (", ".join(restored) or "none")
    summary = element("summary", "The resolved recipe")
    return join(element("p", words + "."), element("details", summary, element("pre", written)))
