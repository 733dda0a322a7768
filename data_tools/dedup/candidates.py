"""Pairs to look at: documents with one key in common, each paired with the one of smallest id.

A star has as many pairs as documents, where all pairs of a bucket of 100,000 documents would be
5 billion. A bucket above the limit is split by the next band of its documents: each part is a star
of its own, whose members agree in two bands, and the centres make one more.

Held-out documents are centres too: each is paired with all of its part, so that a document like it
is found whatever else is in the bucket.

    anchors.npy         uint64[E]      sorted: first half of the id of each pair's first document
    pairs.npy           uint64[E, 2]   nodes, the smaller id first; each pair once a range of keys
    <partition>.npy     uint32         rows of the documents of a partition that are in a pair
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.dedup.held import held, places
from data_tools.dedup.node import begins, facts, homes, id_order, nodes, origins, range_bounds
from data_tools.heldout import HeldoutConfig
from data_tools.stage import Partition, Report, Stage

OVERSIZED_SAMPLES = 20
"""Split buckets of a range that go into the report."""

MOST_HELD = 16
"""Held-out documents of a part that are paired with all of it: those that the hash puts first. More
of them are in one part only where it is made of copies, or most text is held out."""


@dataclass(frozen=True)
class CandidateConfig:
    """One range of keys."""

    index: int
    count: int
    bucket_limit: int
    heldout: HeldoutConfig


def candidates_partition(partition: Partition[CandidateConfig], out: Path) -> Report:
    """Writes the pairs of one range of keys; needs about 60 bytes a key in it, and 250 a key of
    a part with many held-out documents."""
    config, inputs = partition.config, partition.inputs
    size, (key_M, next_M, node_M) = _shared(partition)
    node_N, place_M = np.unique(node_M, return_inverse=True)
    fact_N = facts(inputs["facts"], node_N)
    order = id_order(fact_N)
    rank_N = np.empty_like(order)
    rank_N[order] = np.arange(len(order))
    rank_M = rank_N[place_M]
    bucket_M, part_M, oversized = parts(key_M, next_M, config.bucket_limit)
    pair_E = star(bucket_M, part_M, rank_M)
    if not config.heldout.empty:
        _, type_N = origins(inputs["sources"], node_N, fact_N)
        place_N = places(config.heldout, fact_N)
        held_N = held(config.heldout, place_N, type_N)
        spoke_E = spokes(part_M, rank_M, held_N[place_M], place_N[place_M])
        pair_E = np.union1d(pair_E, spoke_E)
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


def parts(
    key_M: np.ndarray, next_M: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(int64[M] bucket, int64[M] part, both numbered from 0; sizes of the buckets above the limit).

    A part is a bucket, or of one above the limit what agrees in the next key too.
    """
    _, bucket_M, size = np.unique(key_M, return_inverse=True, return_counts=True)
    split_M = np.where(size[bucket_M] > limit, next_M, 0).astype(np.uint64)
    both_M = bucket_M.astype(np.uint64) << np.uint64(32) | split_M
    part_M = np.unique(both_M, return_inverse=True)[1]
    return bucket_M, part_M, size[size > limit].tolist()


def star(bucket_M: np.ndarray, part_M: np.ndarray, rank_M: np.ndarray) -> np.ndarray:
    """Distinct pairs of ranks, sorted, the smaller in the upper half of a uint64."""
    order = np.lexsort((rank_M, part_M))
    bucket_M, part_M, rank_M = bucket_M[order], part_M[order], rank_M[order]
    new_part = begins(part_M)
    centre_M = rank_M[new_part][np.cumsum(new_part) - 1]
    least = np.full(bucket_M.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, bucket_M, rank_M)
    # a member belongs to the centre of its part, a centre to the least of its bucket
    first_M = np.where(new_part, least[bucket_M], centre_M)
    return _pairs(first_M, rank_M)


def spokes(
    part_M: np.ndarray, rank_M: np.ndarray, held_M: np.ndarray, place_M: np.ndarray
) -> np.ndarray:
    """The pairs of the held-out documents of each part, `MOST_HELD` by their place, with all
    of the part; as of `star`."""
    order = np.lexsort((place_M, ~held_M, part_M))  # the held-out ones of a part come first
    part_M, rank_M, held_M = part_M[order], rank_M[order], held_M[order]
    start = np.flatnonzero(begins(part_M))
    size = np.diff(np.append(start, len(part_M)))
    number_M = np.arange(len(part_M)) - np.repeat(start, size)
    centre_H = np.flatnonzero(held_M & (number_M < MOST_HELD))
    size_H = size[part_M[centre_H]]
    end_H = np.cumsum(size_H)
    member_E = np.arange(size_H.sum()) + np.repeat(start[part_M[centre_H]] - end_H + size_H, size_H)
    return _pairs(np.repeat(rank_M[centre_H], size_H), rank_M[member_E])


def _pairs(one_E: np.ndarray, other_E: np.ndarray) -> np.ndarray:
    low_E, high_E = np.minimum(one_E, other_E), np.maximum(one_E, other_E)
    real = low_E != high_E
    return np.unique(
        low_E[real].astype(np.uint64) << np.uint64(32) | high_E[real].astype(np.uint64)
    )


CANDIDATES = Stage("near_candidates", "2", candidates_partition)
