"""How documents lie in shards: by source of the corpus and split, and what is left out."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from data_tools.pack.partition import CHUNKS
from data_tools.pack.pile import bucket_source
from data_tools.recipe import Recipe
from data_tools.report.summary import commits
from data_tools.source import SourceConfig
from data_tools.stage import Commit, StageResult


def packing(
    recipe: Recipe, results: Mapping[str, StageResult], counts: Mapping[str, Any]
) -> dict[str, Any]:
    """`parts`: a row for each source of the corpus (a bucket is one) and split, in the order of the
    recipe; `buckets`: the qualities and the weight of each bucket; `excluded`: by source and
    reason."""
    shards: dict[tuple[str, str, str], list[Commit]] = defaultdict(list)
    for commit in commits(results, "pack"):
        report = commit.report
        shards[report["origin"], report["source"], report["split"]].append(commit)
    return {
        "method": recipe.pack.method,
        "chunk_tokens": recipe.pack.chunk_tokens,
        "parts": [_part(found) for found in shards.values()],
        "buckets": [bucket for source in recipe.sources for bucket in _buckets(recipe, source)],
        "excluded": [
            {"source": name, "reason": reason} | lost
            for name, c in counts.items()
            for reason, lost in c["excluded"].items()
        ],
    }


def _part(shards: list[Commit]) -> dict[str, Any]:
    """Sums over the shards of one source and split."""
    keys = ("documents", "chunks", "tokens", "text_bytes", "padding", "truncated")
    first = shards[0].report
    sizes = [commit.outputs[CHUNKS].bytes for commit in shards]
    return (
        {key: first[key] for key in ("source", "origin", "type", "split")}
        | {key: sum(commit.report[key] for commit in shards) for key in keys}
        | {"shards": len(shards), "file_bytes": sum(sizes), "smallest_shard": min(sizes)}
        | {"largest_shard": max(sizes)}
    )


def _buckets(recipe: Recipe, source: SourceConfig) -> list[dict[str, Any]]:
    """Qualities of each bucket of a source, and how often a token of it is drawn."""
    config = recipe.pack.buckets_of(source.type)
    if config is None:
        return []
    edges = pairwise((0.0, *config.edges, 1.0))
    return [
        {
            "origin": source.name,
            "source": bucket_source(source.name, i),
            "from": low,
            "to": high,
            "weight": source.weight * weight,
        }
        for i, ((low, high), weight) in enumerate(zip(edges, config.weights, strict=True))
    ]
