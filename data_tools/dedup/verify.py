"""Which pairs are really similar: the exact similarity of each, from the sets of both.

    verified.npy   uint64[V, 2]   nodes of the similar pairs

A star can hide a pair: of three documents in a bucket the last two may be similar to each other
and not to the first. Similar documents meet in several buckets, so this is rare, except among many
pages of one template that are themselves nearly similar enough.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.dedup.config import SameConfig
from data_tools.dedup.node import begins, facts, range_bounds
from data_tools.dedup.sets import Sets
from data_tools.stage import Partition, Report, Stage


@dataclass(frozen=True)
class VerifyConfig:
    """One range of first documents."""

    index: int
    count: int
    same: SameConfig
    memory_bytes: int


@dataclass(frozen=True)
class Similarity:
    """Of pairs of documents; 1 for equal texts, also where these have no set of shingles."""

    jaccard_E: np.ndarray
    """float64."""
    first_E: np.ndarray
    """float64: share of the first one's shingles that the second has too."""
    second_E: np.ndarray
    """float64: share of the second one's shingles that the first has too."""

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
        equal_E = (content_N[pair_E2[:, 0]] == content_N[pair_E2[:, 1]]).all(1)
        first_E, second_E = node_N[pair_E2[:, 0]], node_N[pair_E2[:, 1]]
        shared_E = sets.shared(first_E, second_E, memory_bytes)
        sizes = (sets.sizes(first_E), sets.sizes(second_E))
        of = (sizes[0] + sizes[1] - shared_E, *sizes)
        return cls(*(np.where(equal_E, 1.0, shared_E / np.maximum(size, 1)) for size in of))


def verify_partition(partition: Partition[VerifyConfig], out: Path) -> Report:
    """Writes the similar pairs of one range of first documents; needs 100 bytes a pair and
    `memory_bytes`."""
    config, inputs = partition.config, partition.inputs
    node_E2 = _pairs(partition)
    node_N, place_E2 = np.unique(node_E2, return_inverse=True)
    similarity = Similarity.of(
        Sets(inputs["bounds"], inputs["shingles"]),
        facts(inputs["facts"], node_N)["content"],
        node_N,
        place_E2.reshape(-1, 2),
        config.memory_bytes,
    )
    similar_E = similarity.jaccard_E >= config.same.threshold
    if config.same.containment:  # here the order of the two says nothing
        contained_E = np.maximum(similarity.first_E, similarity.second_E)
        similar_E |= contained_E >= config.same.containment
    np.save(out / "verified.npy", node_E2[similar_E])
    verified = int(similar_E.sum())
    return {"pairs": len(node_E2), "verified": verified, "rejected": len(node_E2) - verified}


def _pairs(partition: Partition[VerifyConfig]) -> np.ndarray:
    """uint64[E, 2]: the distinct pairs of the range, from all ranges of keys."""
    found = [np.empty((0, 2), np.uint64)]
    files = zip(partition.inputs["anchors"], partition.inputs["pairs"], strict=True)
    for anchor_file, pair_file in files:
        anchors = np.load(anchor_file.path, mmap_mode="r")
        here = range_bounds(anchors, partition.config.index, partition.config.count)
        found.append(np.load(pair_file.path, mmap_mode="r")[here])
    pair_E2 = np.concatenate(found)
    pair_E2 = pair_E2[np.lexsort((pair_E2[:, 1], pair_E2[:, 0]))]
    return pair_E2[begins(pair_E2[:, 0], pair_E2[:, 1])]


VERIFY = Stage("near_verify", "1", verify_partition)
