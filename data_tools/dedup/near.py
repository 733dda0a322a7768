"""Near duplicates: of the documents that say nearly the same, one stays.

Six stages, so that no process holds the corpus (see their files for what each writes):

    near_index        a partition           facts of each document; band keys of its MinHash
    near_candidates   a range of keys       documents with a key in common, as stars of pairs
    near_sets         a partition           shingles of the documents that are in a pair
    near_verify       a range of pairs      the pairs whose exact similarity reaches the threshold
    near_components   all                   what hangs together by them
    near_duplicates   a range of components what stays, and for what; verdicts, clusters

How documents are cut into partitions, the ranges and the memory budget change no verdict: every
choice is made by content and by id.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data_tools.dedup.candidates import CANDIDATES, OVERSIZED_SAMPLES, CandidateConfig
from data_tools.dedup.clusters import CLUSTERS_STAGE, ClusterConfig
from data_tools.dedup.components import COMPONENTS
from data_tools.dedup.config import NearConfig
from data_tools.dedup.index import INDEX, IndexConfig
from data_tools.dedup.sets import SETS
from data_tools.dedup.verify import VERIFY, VerifyConfig
from data_tools.heldout import HeldoutConfig
from data_tools.stage import Input, Partition, Run, StageResult

type Documents = Sequence[tuple[str, tuple[Input, ...]]]
"""(Name of a partition, its tables of documents)."""

KEY_BYTES, PAIR_BYTES, MEMBER_BYTES = 60, 100, 200
"""Of memory: for a key, a pair and a document in a component, in the stages that sort them."""

SPREAD, SPREAD_BYTES = 8, 1 << 19
"""Ranges that there are in any case, for the workers to share, while each has so much work."""


def find(run: Run, documents: Documents, config: NearConfig, heldout: HeldoutConfig) -> StageResult:
    """Verdicts (`about(partition)`), what stays for others (`about(partition, ".representatives")`)
    and clusters.parquet.

    `run` runs a stage; the result is that of the last.
    """
    memory, same = config.memory_bytes, config.same
    index_config = IndexConfig(config.shingles, config.candidates)
    index = run(INDEX, [Partition(n, index_config, {"documents": d}) for n, d in documents])
    facts = _inputs(index, {"facts": "facts.npy"})
    sources = _inputs(index, {"sources": "sources.json"})

    candidates = run(
        CANDIDATES,
        _ranges(
            _total(index, "records") * KEY_BYTES,
            memory,
            lambda i, n: CandidateConfig(i, n, config.bucket_limit, heldout),
            facts | sources | _inputs(index, {"keys": "keys.npy", "rows": "rows.npy"}),
        ),
    )
    wanted = [
        {"documents": tables} | _inputs(candidates, {"wanted": f"{name}.npy"})
        for name, tables in documents
    ]
    names = [name for name, _ in documents]
    stored = run(
        SETS, [Partition(n, config.shingles, w) for n, w in zip(names, wanted, strict=True)]
    )
    sets = _inputs(stored, {"bounds": "bounds.npy", "shingles": "shingles.u64"})

    verified = run(
        VERIFY,
        _ranges(
            _total(candidates, "pairs") * PAIR_BYTES,
            memory,
            lambda i, n: VerifyConfig(i, n, same, memory),
            facts | sets | _inputs(candidates, {"anchors": "anchors.npy", "pairs": "pairs.npy"}),
        ),
    )
    inputs = facts | _inputs(verified, {"verified": "verified.npy"})
    components = run(COMPONENTS, [Partition("all", None, inputs)])
    return run(
        CLUSTERS_STAGE,
        _ranges(
            _total(components, "documents") * MEMBER_BYTES,
            memory,
            lambda i, n: ClusterConfig(i, n, same, config.survivor, heldout, memory),
            facts
            | sources
            | sets
            | _inputs(components, {n: f"{n}.npy" for n in ("keys", "nodes", "pair_keys", "pairs")}),
        ),
    )


def summary(results: Mapping[str, StageResult], config: NearConfig) -> dict[str, Any]:
    """What the stages said, as plain JSON; `results` are by the name of their stage."""
    index, last = results[INDEX.name], results[CLUSTERS_STAGE.name]
    candidates, verified = results[CANDIDATES.name], results[VERIFY.name]
    components = results[COMPONENTS.name]
    documents, lost = _counts(index, "documents"), _counts(last, "lost")
    oversized = [size for c in candidates.commits for size in c.report["oversized_samples"]]
    sizes = _counts(last, "sizes")
    return {
        "documents": documents,
        "lost": lost,
        "alarms": [
            f"source {source}: near dedup takes {lost[source]} of {total} documents "
            f"({lost[source] / total:.0%}), more than alarm_share={config.alarm_share}"
            for source, total in documents.items()
            if lost.get(source, 0) > config.alarm_share * total
        ],
        "sizes": {size: sizes[size] for size in sorted(sizes, key=int)},
        "candidates": _total(verified, "pairs"),
        "verified": _total(verified, "verified"),
        "rejected": _total(verified, "rejected"),
        "oversized": _total(candidates, "oversized"),
        "oversized_samples": sorted(oversized, reverse=True)[:OVERSIZED_SAMPLES],
        "shingles": _total(results[SETS.name], "shingles"),
        "components": _total(components, "components"),
        "largest_component": _total(components, "largest"),
        "largest_ranges": {
            "keys": _largest(candidates, "keys"),
            "pairs": _largest(verified, "pairs"),
            "documents": _largest(last, "documents"),
        },
    }


def _ranges[C](
    work_bytes: int,
    memory_bytes: int,
    config: Callable[[int, int], C],
    inputs: Mapping[str, tuple[Input, ...]],
) -> list[Partition[C]]:
    """Equal ranges of hashes that each fit in memory, and give all workers something to do."""
    count = max(1, min(SPREAD, work_bytes // SPREAD_BYTES), -(-work_bytes // memory_bytes))
    return [Partition(f"{i:05d}-of-{count:05d}", config(i, count), inputs) for i in range(count)]


def _inputs(result: StageResult, outputs: Mapping[str, str]) -> dict[str, tuple[Input, ...]]:
    """Role -> that output of all partitions, in their order."""
    return {
        role: tuple(i for c in result.commits for i in c.input(name))
        for role, name in outputs.items()
    }


def _total(result: StageResult, count: str) -> int:
    return sum(c.report[count] for c in result.commits)


def _largest(result: StageResult, count: str) -> int:
    return max((c.report[count] for c in result.commits), default=0)


def _counts(result: StageResult, what: str) -> Counter[str]:
    return sum((Counter(c.report[what]) for c in result.commits), Counter())
