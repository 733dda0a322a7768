"""Pairs to look at: documents with one key in common, each paired with the one of smallest id.

A star has as many pairs as documents, where all pairs of a bucket of 100,000 documents would be
5 billion. A bucket above the limit is split by the next band of its documents: each part is a star
of its own, whose members agree in two bands, and the centres make one more.

    anchors.npy         uint64[E]      sorted: first half of the id of each pair's first document
    pairs.npy           uint64[E, 2]   nodes, the smaller id first; each pair once a range of keys
    <partition>.npy     uint32         rows of the documents of a partition that are in a pair
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.dedup.node import begins, facts, homes, id_order, nodes, range_bounds
from data_tools.stage import Partition, Report, Stage

OVERSIZED_SAMPLES = 20
"""Split buckets of a range that go into the report."""


@dataclass(frozen=True)
class CandidateConfig:
    """One range of keys."""

    index: int
    count: int
    bucket_limit: int


def candidates_partition(partition: Partition[CandidateConfig], out: Path) -> Report:
    """Writes the pairs of one range of keys; needs about 60 bytes a key in it."""
    config, inputs = partition.config, partition.inputs
    size, (key_M, next_M, node_M) = _shared(partition)
    node_N, place_M = np.unique(node_M, return_inverse=True)
    fact_N = facts(inputs["facts"], node_N)
    order = id_order(fact_N)
    rank_N = np.empty_like(order)
    rank_N[order] = np.arange(len(order))
    pair_E, oversized = star(key_M, next_M, rank_N[place_M], config.bucket_limit)
    pair_E2 = order[np.stack([pair_E >> np.uint64(32), pair_E & np.uint64(0xFFFFFFFF)], 1)]
    np.save(out / "anchors.npy", fact_N["id"][pair_E2[:, 0], 0].astype(np.uint64))
    np.save(out / "pairs.npy", node_N[pair_E2])
    for home, _, rows in homes(node_N[np.unique(pair_E2)]):
        np.save(out / f"{inputs['facts'][home].name}.npy", rows.astype(np.uint32))
    return {
        "keys": size,
        "pairs": len(pair_E2),
        "oversized": len(oversized),
        "oversized_samples": sorted(oversized, reverse=True)[:OVERSIZED_SAMPLES],
    }


def _shared(
    partition: Partition[CandidateConfig],
) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Keys in the range, and (key, next key, node) of those that more than one document has."""
    keys, rows, found = [], [], []
    files = zip(partition.inputs["keys"], partition.inputs["rows"], strict=True)
    for home, (key_file, row_file) in enumerate(files):
        all_keys = np.load(key_file.path, mmap_mode="r")
        here = range_bounds(all_keys, partition.config.index, partition.config.count)
        keys.append(all_keys[here])
        rows.append(np.load(row_file.path, mmap_mode="r")[here])
        found.append(nodes(home, rows[-1][:, 1]))
    key_M, next_M, node_M = np.concatenate(keys), np.concatenate(rows)[:, 0], np.concatenate(found)
    order = np.argsort(key_M, kind="stable")
    as_before = np.zeros(len(order) + 1, bool)
    as_before[1:-1] = key_M[order][1:] == key_M[order][:-1]
    shared = order[as_before[:-1] | as_before[1:]]
    return len(key_M), (key_M[shared], next_M[shared], node_M[shared])


def star(
    key_M: np.ndarray, next_M: np.ndarray, rank_M: np.ndarray, limit: int
) -> tuple[np.ndarray, list[int]]:
    """(Distinct pairs of ranks, sorted, the smaller in the upper half of a uint64; sizes of the
    buckets above the limit)."""
    _, bucket_M, size = np.unique(key_M, return_inverse=True, return_counts=True)
    part_M = np.where(size[bucket_M] > limit, next_M, 0)
    order = np.lexsort((rank_M, part_M, bucket_M))
    bucket_M, part_M, rank_M = bucket_M[order], part_M[order], rank_M[order]
    new_part = begins(bucket_M, part_M)
    centre_M = rank_M[new_part][np.cumsum(new_part) - 1]
    least = np.full(len(size), np.iinfo(np.int64).max)
    np.minimum.at(least, bucket_M, rank_M)
    # a member belongs to the centre of its part, a centre to the least of its bucket
    first_M = np.where(new_part, least[bucket_M], centre_M)
    real = first_M != rank_M
    pair_E = first_M[real].astype(np.uint64) << np.uint64(32) | rank_M[real].astype(np.uint64)
    return np.unique(pair_E), size[size > limit].tolist()


CANDIDATES = Stage("near_candidates", "1", candidates_partition)
