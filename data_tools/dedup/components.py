"""Connected components of the similar pairs, in one task.

    keys.npy    uint64[M]   sorted: first half of the smallest id of each document's component
    nodes.npy   uint64[M]   of each key: the document; by id in each component
    pair_keys.npy, pairs.npy   uint64[V], uint64[V, 2]   the similar pairs by component, as nodes

It is the one step that holds something of the whole corpus: about 100 bytes a similar pair.
"""

from pathlib import Path

import numpy as np

from data_tools.dedup.node import facts, id_order
from data_tools.stage import Partition, Report, Stage


def components_partition(partition: Partition[None], out: Path) -> Report:
    """Writes the documents that are similar to some other, by component."""
    verified = [np.load(i.path) for i in partition.inputs["verified"]]
    pair_V2 = np.concatenate([np.empty((0, 2), np.uint64), *verified])
    node_N, place_V2 = np.unique(pair_V2, return_inverse=True)
    fact_N = facts(partition.inputs["facts"], node_N)
    order = id_order(fact_N)
    rank_N = np.empty_like(order)
    rank_N[order] = np.arange(len(order))
    pair_V2 = rank_N[place_V2.reshape(-1, 2)]
    label_N = components(pair_V2[:, 0], pair_V2[:, 1], len(order))
    fact_N, node_N = fact_N[order], node_N[order]
    key_N = fact_N["id"][label_N, 0].astype(np.uint64)
    by_key = np.argsort(key_N, kind="stable")
    np.save(out / "keys.npy", key_N[by_key])
    np.save(out / "nodes.npy", node_N[by_key])
    key_V = key_N[pair_V2[:, 0]]
    by_key = np.argsort(key_V, kind="stable")
    np.save(out / "pair_keys.npy", key_V[by_key])
    np.save(out / "pairs.npy", node_N[pair_V2[by_key]])
    _, sizes = np.unique(label_N, return_counts=True)
    return {
        "documents": len(node_N),
        "components": len(sizes),
        "largest": int(max(sizes, default=0)),
    }


def components(first_E: np.ndarray, second_E: np.ndarray, count: int) -> np.ndarray:
    """int64[count]: the smallest number in the component of each of the numbers 0 to `count`."""
    label_N = np.arange(count)
    while True:
        before = label_N.copy()
        low_E = np.minimum(label_N[first_E], label_N[second_E])
        np.minimum.at(label_N, before[first_E], low_E)
        np.minimum.at(label_N, before[second_E], low_E)
        while not np.array_equal(further := label_N[label_N], label_N):
            label_N = further
        if np.array_equal(before, label_N):
            return label_N


COMPONENTS = Stage("near_components", "2", components_partition)
