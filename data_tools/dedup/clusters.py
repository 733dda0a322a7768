"""From components to clusters: the document that stays, and those that are really like it.

The best document of a component stays. Each other one is compared with it: similar ones go, the
rest are a component again, until each document stays or is similar to one that does.

    <partition>.parquet             VERDICTS about the documents of a partition
    <partition>.relatives.parquet   RELATIVES of the documents of a partition
    clusters.parquet                CLUSTERS, of one range of components
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.dedup.config import SameConfig, SurvivorConfig
from data_tools.dedup.hashes import hashes
from data_tools.dedup.node import begins, facts, homes, range_bounds
from data_tools.dedup.sets import Sets
from data_tools.dedup.verify import Similarity
from data_tools.drops import VERDICTS
from data_tools.heldout import RELATIVES
from data_tools.stage import Input, Partition, Report, Stage

CLUSTERS = pa.schema(
    [
        ("cluster", pa.binary(16)),
        ("id", pa.binary(16)),
        ("source", pa.string()),
        ("similarity", pa.float64()),
        ("kept", pa.bool_()),
    ]
)
"""`cluster`: id of the document that stays; `similarity`: Jaccard, to that document."""


@dataclass(frozen=True)
class ClusterConfig:
    """One range of components."""

    index: int
    count: int
    same: SameConfig
    survivor: SurvivorConfig
    memory_bytes: int


@dataclass(frozen=True)
class _Clusters:
    """Places in a list of documents: of those that go, and for each the one that stays."""

    kept_D: np.ndarray
    gone_D: np.ndarray
    jaccard_D: np.ndarray
    contained_D: np.ndarray


def clusters_partition(partition: Partition[ClusterConfig], out: Path) -> Report:
    """Writes what there is to say about one range of components; needs 200 bytes a document in
    it and `memory_bytes`."""
    config, inputs = partition.config, partition.inputs
    (key_file,), (node_file,) = inputs["keys"], inputs["nodes"]
    keys = np.load(key_file.path, mmap_mode="r")
    here = range_bounds(keys, config.index, config.count)
    component_N = np.array(keys[here])
    node_N = np.array(np.load(node_file.path, mmap_mode="r")[here])
    fact_N = facts(inputs["facts"], node_N)
    source_N = _sources(inputs["sources"], node_N, fact_N)
    best = _policy(fact_N, source_N, config.survivor)
    best = best[np.argsort(component_N[best], kind="stable")]
    sets = Sets(inputs["bounds"], inputs["shingles"])
    found = _resolve(component_N, best, sets, fact_N["content"], node_N, config)
    names = [i.name for i in inputs["facts"]]
    _write_verdicts(found, fact_N, node_N, names, config.same.threshold, out)
    _write_relatives(_relatives(found, node_N, partition), fact_N, node_N, names, out)
    _write_clusters(found, component_N, fact_N, source_N, out)
    _, sizes = np.unique(found.kept_D, return_counts=True)
    return {
        "documents": len(node_N),
        "sizes": {str(k): v for k, v in sorted(Counter((sizes + 1).tolist()).items())},
        "lost": dict(sorted(Counter(source_N[found.gone_D].tolist()).items())),
    }


def _sources(files: tuple[Input, ...], node_N: np.ndarray, fact_N: np.ndarray) -> np.ndarray:
    """str[N]: the name of each document's source."""
    result = np.empty(len(node_N), object)
    for home, places, _ in homes(node_N):
        names = json.loads(files[home].path.read_text(encoding="utf-8"))
        result[places] = np.array(names, object)[fact_N["source"][places]]
    return result


def _policy(fact_N: np.ndarray, source_N: np.ndarray, config: SurvivorConfig) -> np.ndarray:
    """int64[N]: places of the documents, the best first."""
    order = {name: i for i, name in enumerate(config.sources)}
    criteria = {
        "quality": -fact_N["quality"],
        "longest": -fact_N["length"].astype(np.int64),
        "source": np.array([order.get(name, len(order)) for name in source_N], np.int64),
    }
    place_N = np.arange(len(fact_N))  # the documents of a component come in the order of ids
    return np.lexsort([place_N, *(criteria[name] for name in reversed(config.order))])


def _resolve(
    component_N: np.ndarray,
    best: np.ndarray,
    sets: Sets,
    content_N: np.ndarray,
    node_N: np.ndarray,
    config: ClusterConfig,
) -> _Clusters:
    """`best`: places, by component, the best of each first."""
    found = [_Clusters(*(np.empty(0, t) for t in (np.int64, np.int64, np.float64, np.float64)))]
    while len(best):
        leads = begins(component_N[best])
        lead = best[leads][np.cumsum(leads) - 1]
        pair_E2 = np.stack([lead, best], 1)[~leads]
        similarity = Similarity.of(sets, content_N, node_N, pair_E2, config.memory_bytes)
        same_E = similarity.jaccard_E >= config.same.threshold
        if config.same.containment:  # of the one that goes in the one that stays
            same_E |= similarity.second_E >= config.same.containment
        found.append(
            _Clusters(
                pair_E2[same_E, 0],
                pair_E2[same_E, 1],
                similarity.jaccard_E[same_E],
                similarity.second_E[same_E],
            )
        )
        best = pair_E2[~same_E, 1]
    columns = ("kept_D", "gone_D", "jaccard_D", "contained_D")
    return _Clusters(*(np.concatenate([getattr(f, c) for f in found]) for c in columns))


def _write_verdicts(
    found: _Clusters,
    fact_N: np.ndarray,
    node_N: np.ndarray,
    names: list[str],
    threshold: float,
    out: Path,
) -> None:
    for home, places, _ in homes(node_N[found.gone_D]):
        gone = hashes(fact_N["id"][found.gone_D[places]])
        kept = hashes(fact_N["id"][found.kept_D[places]])
        why = zip(kept, found.jaccard_D[places], found.contained_D[places], strict=True)
        details = [
            f"similarity {jaccard:.4f} to document {id.hex()}"
            + (f", which has {contained:.4f} of it" if jaccard < threshold else "")
            for id, jaccard, contained in why
        ]
        table = pa.table([gone, ["near_duplicate"] * len(gone), details], VERDICTS)
        pq.write_table(table, out / f"{names[home]}.parquet", compression="zstd")


def _relatives(
    found: _Clusters, node_N: np.ndarray, partition: Partition[ClusterConfig]
) -> np.ndarray:
    """int64[R, 2]: places of two documents that are similar, each pair in both orders: those of the
    range that were verified, and the members of a cluster with the one that stays."""
    (key_file,), (pair_file,) = partition.inputs["pair_keys"], partition.inputs["pairs"]
    keys = np.load(key_file.path, mmap_mode="r")
    here = range_bounds(keys, partition.config.index, partition.config.count)
    pair_V2 = np.load(pair_file.path, mmap_mode="r")[here]
    by_node = np.argsort(node_N)
    place_V2 = by_node[np.searchsorted(node_N[by_node], pair_V2)]
    pair_R2 = np.concatenate([place_V2, np.stack([found.kept_D, found.gone_D], 1)])
    return np.unique(np.concatenate([pair_R2, pair_R2[:, ::-1]]), axis=0)


def _write_relatives(
    pair_R2: np.ndarray, fact_N: np.ndarray, node_N: np.ndarray, names: list[str], out: Path
) -> None:
    for home, places, _ in homes(node_N[pair_R2[:, 0]]):
        ids = hashes(fact_N["id"][pair_R2[places, 0]])
        others = hashes(fact_N["read"][pair_R2[places, 1]])
        table = pa.table([ids, others], RELATIVES)
        pq.write_table(table, out / f"{names[home]}.relatives.parquet", compression="zstd")


def _write_clusters(
    found: _Clusters, component_N: np.ndarray, fact_N: np.ndarray, source_N: np.ndarray, out: Path
) -> None:
    """By component, then cluster; the document that stays, the others by falling similarity."""
    anchor = np.unique(found.kept_D)
    cluster = np.append(anchor, found.kept_D)
    member = np.append(anchor, found.gone_D)
    similarity = np.append(np.ones(len(anchor)), found.jaccard_D)
    kept = np.arange(len(member)) < len(anchor)
    id_N2 = fact_N["id"]
    order = np.lexsort(
        [
            *(id_N2[member, i] for i in (1, 0)),
            -similarity,
            ~kept,
            *(id_N2[cluster, i] for i in (1, 0)),
            component_N[cluster],
        ]
    )
    columns = [
        hashes(id_N2[cluster[order]]),
        hashes(id_N2[member[order]]),
        source_N[member[order]].tolist(),
        similarity[order],
        kept[order],
    ]
    pq.write_table(pa.table(columns, CLUSTERS), out / "clusters.parquet", compression="zstd")


CLUSTERS_STAGE = Stage("near_duplicates", "3", clusters_partition)
