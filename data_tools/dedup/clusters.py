"""From components to clusters: the document that stays, and those that go for it.

<partition>.parquet                   VERDICTS about the documents of a partition
<partition>.representatives.parquet   ids of those of its documents that others went for
clusters.parquet                      CLUSTERS, of one range of components
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.dedup.config import SameConfig, SurvivorConfig
from data_tools.dedup.held import held, places
from data_tools.dedup.node import facts, homes, origins, range_bounds
from data_tools.dedup.resolve import Clusters, Members, resolve
from data_tools.dedup.sets import Sets
from data_tools.dedup.verify import Similarity
from data_tools.drops import VERDICTS
from data_tools.hashes import hashes
from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
from data_tools.stage import Partition, Report, Stage

CLUSTERS = pa.schema(
    [
        ("cluster", pa.binary(16)),
        ("id", pa.binary(16)),
        ("source", pa.string()),
        ("similarity", pa.float64()),
        ("kept", pa.bool_()),
    ]
)
"""`cluster`: id of the document that stays; `similarity`: Jaccard, to that document, or to a
held-out one that it stands for."""


@dataclass(frozen=True)
class ClusterConfig:
    """One range of components."""

    index: int
    count: int
    same: SameConfig
    survivor: SurvivorConfig
    heldout: HeldoutConfig
    memory_bytes: int


def clusters_partition(partition: Partition[ClusterConfig], out: Path) -> Report:
    """Writes what there is to say about one range of components; needs 200 bytes a document in
    it and `memory_bytes`."""
    config, inputs = partition.config, partition.inputs
    (key_file,), (node_file,) = inputs["keys"], inputs["nodes"]
    keys = np.load(key_file.path, mmap_mode="r")
    here = range_bounds(keys, config.index, config.count)
    node_N = np.array(np.load(node_file.path, mmap_mode="r")[here])
    fact_N = facts(inputs["facts"], node_N)
    source_N, type_N = origins(inputs["sources"], node_N, fact_N)
    held_N = held(config.heldout, places(config.heldout, fact_N), type_N)
    members = Members(np.array(keys[here]), fact_N, source_N, held_N)
    sets = Sets(inputs["bounds"], inputs["shingles"])

    def compare(pair_E2: np.ndarray) -> Similarity:
        return Similarity.of(sets, fact_N["content"], node_N, pair_E2, config.memory_bytes)

    similar_V2 = _similar(partition, node_N)
    found = resolve(members, similar_V2, compare, config.same, config.survivor)
    names = [i.name for i in inputs["facts"]]
    for home, gone, _ in homes(node_N[found.gone_D]):
        table = _verdicts(found, gone, members, config.same.threshold)
        pq.write_table(table, out / f"{names[home]}.parquet", compression="zstd")
    kept_R = np.unique(found.kept_D)
    for home, kept, _ in homes(node_N[kept_R]):
        table = pa.table({"id": hashes(fact_N["id"][kept_R[kept]])})
        pq.write_table(table, out / f"{names[home]}.representatives.parquet", compression="zstd")
    pq.write_table(_table(found, members), out / "clusters.parquet", compression="zstd")
    _, sizes = np.unique(found.kept_D, return_counts=True)
    return {
        "documents": len(node_N),
        "sizes": {str(k): v for k, v in sorted(Counter((sizes + 1).tolist()).items())},
        "lost": dict(sorted(Counter(source_N[found.gone_D].tolist()).items())),
    }


def _similar(partition: Partition[ClusterConfig], node_N: np.ndarray) -> np.ndarray:
    """int64[V, 2]: the similar pairs of the range that were looked at, as places in `node_N`."""
    (key_file,), (pair_file,) = partition.inputs["pair_keys"], partition.inputs["pairs"]
    keys = np.load(key_file.path, mmap_mode="r")
    here = range_bounds(keys, partition.config.index, partition.config.count)
    pair_V2 = np.load(pair_file.path, mmap_mode="r")[here]
    by_node = np.argsort(node_N)
    return by_node[np.searchsorted(node_N[by_node], pair_V2)]


def _verdicts(found: Clusters, gone: np.ndarray, members: Members, threshold: float) -> pa.Table:
    """About some of those that go."""
    held_N, like_D = members.held_N, found.like_D[gone]
    ids, likes = (hashes(members.fact_N["id"][d]) for d in (found.gone_D[gone], like_D))
    barred = held_N[like_D] & ~held_N[found.gone_D[gone]]
    why = zip(likes, barred, found.jaccard_D[gone], found.contained_D[gone], strict=True)
    details = []
    for id, bar, jaccard, contained in why:
        detail = f"similarity {jaccard:.4f} to document {id.hex()}"
        detail += ", which is held out" if bar else ""
        if jaccard < threshold:
            shared = "one of them has {:.4f} of the other" if bar else "which has {:.4f} of it"
            detail += f", {shared.format(contained)}"
        details.append(detail)
    rules = [HELDOUT_DUPLICATE if bar else "near_duplicate" for bar in barred]
    return pa.table([ids, rules, details], VERDICTS)


def _table(found: Clusters, members: Members) -> pa.Table:
    """By component, then cluster; the document that stays, the others by falling similarity."""
    anchor = np.unique(found.kept_D)
    cluster = np.append(anchor, found.kept_D)
    member = np.append(anchor, found.gone_D)
    similarity = np.append(np.ones(len(anchor)), found.jaccard_D)
    kept = np.arange(len(member)) < len(anchor)
    id_N2 = members.fact_N["id"]
    order = np.lexsort(
        [
            *(id_N2[member, i] for i in (1, 0)),
            -similarity,
            ~kept,
            *(id_N2[cluster, i] for i in (1, 0)),
            members.component_N[cluster],
        ]
    )
    columns = [
        hashes(id_N2[cluster[order]]),
        hashes(id_N2[member[order]]),
        members.source_N[member[order]].tolist(),
        similarity[order],
        kept[order],
    ]
    return pa.table(columns, CLUSTERS)


CLUSTERS_STAGE = Stage("near_duplicates", "5", clusters_partition)
