"""What dedup found and took: by source, by size of cluster, and in tokens."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from data_tools.dedup import near
from data_tools.recipe import Recipe
from data_tools.report.summary import DROPPING, reports
from data_tools.stage import StageResult
from data_tools.tally import length_bin

COPIES = ("exact_duplicate", "near_duplicate")
"""The verdicts of dedup."""


def duplicates(
    recipe: Recipe, results: Mapping[str, StageResult], counts: Mapping[str, Any]
) -> dict[str, Any]:
    """Documents and estimated tokens lost to dedup, by source, and what near dedup says of itself.

    `sizes` are clusters by their documents, in bins of powers of two.
    """
    sources = {s.name: _lost(s.name, counts[s.name], results) for s in recipe.sources}
    found = near.summary(results, recipe.near)
    sizes: Counter[str] = Counter()
    for documents, clusters in found["sizes"].items():
        sizes[length_bin(int(documents))] += clusters
    return {
        "documents": sum(s[rule] for s in sources.values() for rule in COPIES),
        "sources": sources,
        "tokens": sum(s["tokens"] for s in sources.values()),
        "near": found | {"sizes": dict(sizes)},
    }


def _lost(source: str, counts: Mapping[str, Any], results: Mapping[str, StageResult]) -> Any:
    """Copies of one source; the tokens of their text as far as those of its kept text tell."""
    lost = [r["lost"] for stage in DROPPING for r in reports(results, stage, source)]
    tallies = {rule: [rules[rule] for rules in lost if rule in rules] for rule in COPIES}
    text_bytes = sum(t["text_bytes"] for found in tallies.values() for t in found)
    return {rule: sum(t["documents"] for t in tallies[rule]) for rule in COPIES} | {
        "read": counts["documents"],
        "text_bytes": text_bytes,
        "tokens": round(text_bytes * counts["tokens"] / max(counts["kept_text_bytes"], 1)),
    }
