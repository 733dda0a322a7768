"""What dedup found and took: by source, by size of cluster, and in tokens."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from data_tools.dedup import near
from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.recipe import Recipe
from data_tools.report.summary import DROPPING, reports
from data_tools.stage import StageResult
from data_tools.tally import length_bin

COPIES = ("exact_duplicate", "near_duplicate", HELDOUT_DUPLICATE)
"""The verdicts of dedup."""


def duplicates(
    recipe: Recipe, results: Mapping[str, StageResult], counts: Mapping[str, Any]
) -> dict[str, Any]:
    """Documents and estimated tokens lost to dedup, by source, and what near dedup says of itself.

    `gain`: tokens of copies for each token that stays, which is how much more different text as
    many tokens of training see. `sizes`: clusters by their documents, in bins of powers of two.
    """
    sources = {s.name: _lost(s.name, counts[s.name], results) for s in recipe.sources}
    found = near.summary(results, recipe.near)
    sizes: Counter[str] = Counter()
    for documents, clusters in found["sizes"].items():
        sizes[length_bin(int(documents))] += clusters
    tokens = sum(s["tokens"] for s in sources.values())
    return {
        "documents": sum(s[rule] for s in sources.values() for rule in COPIES),
        "sources": sources,
        "tokens": tokens,
        "gain": tokens / max(sum(c["tokens"] for c in counts.values()), 1),
        "near": found | {"sizes": dict(sizes)},
    }


def _lost(source: str, counts: Mapping[str, Any], results: Mapping[str, StageResult]) -> Any:
    """Copies of one source: documents, bytes, and the tokens that they would have been."""
    lost = {stage: [r["lost"] for r in reports(results, stage, source)] for stage in DROPPING}
    tallies = {
        stage: [rules[rule] for rules in lost[stage] for rule in COPIES if rule in rules]
        for stage in DROPPING
    }
    # copies of texts as they were read go in the first of these stages, others in the last
    exact, near = (sum(t["text_bytes"] for t in tallies[s]) for s in (DROPPING[0], DROPPING[-1]))
    kept = counts["kept_text_bytes"]
    # exact copies are gone before the rules: as many of them would have passed as of the others
    passing = (kept + near) / max(counts["text_bytes"] - exact, 1)
    return {rule: counts["dropped"].get(rule, 0) for rule in COPIES} | {
        "read": counts["documents"],
        "text_bytes": exact + near,
        "tokens": round((exact * passing + near) * counts["tokens"] / max(kept, 1)),
    }
