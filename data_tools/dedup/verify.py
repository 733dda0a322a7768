"""Which pairs are really similar: the exact similarity of each, from the sets of both.

    verified.npy   uint64[V, 2]   nodes of the similar pairs

A star hides pairs: of three documents in a bucket the last two may be similar to each other and not
to the first. So the members that fail are made a star of their own, a few times over.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.dedup.config import SameConfig
from data_tools.dedup.node import begins, facts, id_order, range_bounds
from data_tools.dedup.sets import Sets
from data_tools.stage import Partition, Report, Stage

LOOKS = 4
"""Stars that a document may be in for one first document."""


@dataclass(frozen=True)
class VerifyConfig:
    """One range of first documents."""

    index: int
    count: int
    same: SameConfig
    memory_bytes: int


@dataclass(frozen=True)
class Similarity:
    """Of pairs of documents (first, second)."""

    jaccard_E: np.ndarray
    """float64: 1 for equal texts."""
    contained_E: np.ndarray
    """float64: share of the second's shingles that are in the first."""

    @classmethod
    def of(
        cls,
        sets: Sets,
        content_N: np.ndarray,
        node_N: np.ndarray,
        pair_E2: np.ndarray,
        memory_bytes: int,
    ) -> "Similarity":
        """`content_N` are the hashes (two words each) of the texts of `node_N`; pairs are places
        in these, best sorted by the first."""
        first_E, second_E = pair_E2[:, 0], pair_E2[:, 1]
        size_N = sets.sizes(node_N)
        shared_E = sets.shared(node_N[first_E], node_N[second_E], memory_bytes)
        union_E = size_N[first_E] + size_N[second_E] - shared_E
        equal_E = (content_N[first_E] == content_N[second_E]).all(1)
        return cls(
            np.where(equal_E, 1.0, shared_E / np.maximum(union_E, 1)),
            np.where(equal_E, 1.0, shared_E / np.maximum(size_N[second_E], 1)),
        )

    def same(self, config: SameConfig) -> np.ndarray:
        """bool[E]: whether the second says what the first does."""
        similar_E = self.jaccard_E >= config.threshold
        if config.containment:
            similar_E |= self.contained_E >= config.containment
        return similar_E


def verify_partition(partition: Partition[VerifyConfig], out: Path) -> Report:
    """Writes the similar pairs of one range of first documents; needs 100 bytes a pair and
    `memory_bytes`."""
    config, inputs = partition.config, partition.inputs
    node_E2 = _pairs(partition)
    node_N, place_E2 = np.unique(node_E2, return_inverse=True)
    fact_N = facts(inputs["facts"], node_N)
    order = id_order(fact_N)
    node_N, content_N = node_N[order], fact_N["content"][order]
    rank_N = np.empty_like(order)
    rank_N[order] = np.arange(len(order))
    pair_E2 = rank_N[place_E2.reshape(-1, 2)]
    pair_E2 = pair_E2[np.lexsort((pair_E2[:, 1], pair_E2[:, 0]))]
    sets = Sets(inputs["bounds"], inputs["shingles"])
    origin_E = pair_E2[:, 0]
    verified = [np.empty((0, 2), np.uint64)]
    pairs, looked = len(pair_E2), 0
    for _ in range(LOOKS):
        looked += len(pair_E2)
        similarity = Similarity.of(sets, content_N, node_N, pair_E2, config.memory_bytes)
        same_E = similarity.same(config.same)
        if config.same.containment:  # here the order of the two says nothing
            back = Similarity.of(sets, content_N, node_N, pair_E2[:, ::-1], config.memory_bytes)
            same_E |= back.same(config.same)
        verified.append(node_N[pair_E2[same_E]])
        origin_E, pair_E2 = _stars_again(origin_E[~same_E], pair_E2[~same_E, 1])
        if not len(pair_E2):
            break
    found = np.concatenate(verified)
    np.save(out / "verified.npy", found)
    return {
        "pairs": pairs,
        "looked": looked,
        "verified": len(found),
        "rejected": looked - len(found),
    }


def _pairs(partition: Partition[VerifyConfig]) -> np.ndarray:
    """uint64[E, 2]: the distinct pairs of the range, from all ranges of keys."""
    found = [np.empty((0, 2), np.uint64)]
    files = zip(partition.inputs["anchors"], partition.inputs["pairs"], strict=True)
    for anchor_file, pair_file in files:
        anchors = np.load(anchor_file.path, mmap_mode="r")
        here = range_bounds(anchors, partition.config.index, partition.config.count)
        found.append(np.load(pair_file.path, mmap_mode="r")[here])
    return np.unique(np.concatenate(found), axis=0)


def _stars_again(origin_E: np.ndarray, member_E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Origin, pair) for the members that failed: the first of each origin's is their centre.

    Both are sorted by origin, then by member.
    """
    new_E = begins(origin_E)
    centre_E = member_E[new_E][np.cumsum(new_E) - 1]
    pair_E2 = np.stack([centre_E, member_E], 1)
    return origin_E[~new_E], pair_E2[~new_E]


VERIFY = Stage("near_verify", "1", verify_partition)
