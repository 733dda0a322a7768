"""Counts of each source, from what the stages said: they go into the manifest too."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from data_tools.recipe import Recipe
from data_tools.source import source_of
from data_tools.stage import Commit, Report, StageResult

DROPPING = ("clean", "privacy", "tokenize")
"""Stages that drop documents, in order: those of a verdict go where the next text is written."""


def summarize(recipe: Recipe, results: Mapping[str, StageResult]) -> dict[str, Any]:
    """Source -> its counts: documents read, bad, dropped by rule and kept, and tokens.

    What is kept is in the split train or heldout, or excluded from both.
    """
    return {source.name: _source_counts(source.name, results) for source in recipe.sources}


def commits(results: Mapping[str, StageResult], stage: str, source: str = "") -> list[Commit]:
    """A stage's partitions, of one source or all; none of a stage that has not run."""
    found = results[stage].commits if stage in results else ()
    return [c for c in found if not source or source_of(c.partition) == source]


def reports(results: Mapping[str, StageResult], stage: str, source: str = "") -> list[Report]:
    """What these partitions said."""
    return [c.report for c in commits(results, stage, source)]


def total(counts: list[Mapping[str, int]]) -> dict[str, int]:
    """The sums of all keys, in order of first appearance."""
    sums: Counter[str] = Counter()
    for mapping in counts:
        sums.update(mapping)
    return dict(sums)


def _source_counts(source: str, results: Mapping[str, StageResult]) -> dict[str, Any]:
    read = reports(results, "read", source)
    kept = reports(results, "tokenize", source)
    dropped = [r["dropped"] for stage in DROPPING for r in reports(results, stage, source)]
    counts: dict[str, Any] = {
        "files": sum(r["files"] for r in read),
        "documents": sum(r["documents"] for r in read),
        "text_bytes": sum(r["text_bytes"] for r in read),
        "bad": total([r["bad"] for r in read]),
        "dropped": total(dropped),
        "kept": sum(r["documents"] for r in kept),
        "kept_text_bytes": sum(r["text_bytes"] for r in kept),
        "tokens": sum(r["tokens"] for r in kept),
    }
    excluded = [r["excluded"] for r in reports(results, "shuffle", source)]
    reasons = sorted({reason for counted in excluded for reason in counted})
    counts["excluded"] = {r: total([c[r] for c in excluded if r in c]) for r in reasons}
    packed = [r for r in reports(results, "pack") if r["origin"] == source]
    for split in ("train", "heldout"):
        here = [r for r in packed if r["split"] == split]
        keys = ("documents", "chunks", "tokens", "padding", "truncated")
        counts[split] = {key: sum(r[key] for r in here) for key in keys}
        counts[split]["shards"] = len(here)
    return counts
