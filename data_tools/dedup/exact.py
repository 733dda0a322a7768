"""Exact duplicates: of the documents of one type and text, the one with the smallest id stays.

Two stages, so that no process holds the hashes of the whole corpus. `exact_keys` sorts content
hash, type and id of each partition's documents into buckets by hash; `exact_duplicates` finds, in
one bucket of all partitions, the documents that do not stay, and writes them apart for each
partition: text is not copied for it.

It runs first, on the text as it was read, and saves the later steps the work. Copies that cleaning
makes equal are left to near dedup, and so are those of other types, whose own rules may drop them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools import thresholds
from data_tools.dedup.hashes import words
from data_tools.dedup.node import begins
from data_tools.drops import VERDICTS
from data_tools.stage import Input, Partition, Report, Run, Stage, StageResult


@dataclass(frozen=True)
class ExactConfig:
    """Copies of documents of one type: the one with the smallest id stays."""

    buckets: int = 16
    """Hash ranges that are sorted apart, in about 300 bytes of memory a document in one: more of
    them for more than 50 million documents."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "buckets")


KEYS = pa.schema([("content_hash", pa.binary(16)), ("type", pa.string()), ("id", pa.binary(16))])


def find(
    run: Run, documents: Sequence[tuple[str, tuple[Input, ...]]], config: ExactConfig
) -> StageResult:
    """Verdicts about the copies among `documents`: (partition, its tables)."""
    keys = run(KEYS_STAGE, [Partition(n, config, {"documents": i}) for n, i in documents])
    partitions = []
    for bucket in range(config.buckets):
        inputs = tuple(i for c in keys.commits for i in c.input(bucket_name(bucket)))
        if inputs:
            partitions.append(Partition(f"bucket-{bucket:05d}", None, {"keys": inputs}))
    return run(DUPLICATES_STAGE, partitions)


def bucket_name(bucket: int) -> str:
    """Output of `exact_keys` that holds one range of hashes."""
    return f"bucket-{bucket:05d}.parquet"


def keys_partition(partition: Partition[ExactConfig], out: Path) -> Report:
    """Writes bucket-*.parquet."""
    tables = [pq.read_table(i.path, columns=KEYS.names) for i in partition.inputs["documents"]]
    keys = pa.concat_tables(tables)
    high = words(keys["content_hash"])[:, 0] >> np.uint64(32)
    bucket_N = (high * np.uint64(partition.config.buckets)) >> np.uint64(32)
    for bucket in np.unique(bucket_N):
        rows = keys.take(np.flatnonzero(bucket_N == bucket))
        pq.write_table(rows, out / bucket_name(bucket), compression="zstd")
    return {"documents": len(keys)}


def duplicates_partition(partition: Partition[None], out: Path) -> Report:
    """Writes, for each partition with duplicates in this bucket, their ids and those that stay."""
    inputs = partition.inputs["keys"]
    tables = [pq.read_table(i.path) for i in inputs]
    keys = pa.concat_tables(tables)
    origin_N = np.repeat(np.arange(len(inputs)), [len(t) for t in tables])
    hash_N2, id_N2 = words(keys["content_hash"]), words(keys["id"])
    type_N = keys["type"].combine_chunks().dictionary_encode().indices.to_numpy()
    order_N = np.lexsort((id_N2[:, 1], id_N2[:, 0], type_N, hash_N2[:, 1], hash_N2[:, 0]))
    same_N = ~begins(type_N[order_N], *hash_N2[order_N].T)
    # the first of each run of one hash and type has the smallest id
    first_N = np.maximum.accumulate(np.where(same_N, 0, np.arange(len(order_N))))
    lost, kept = order_N[same_N], order_N[first_N[same_N]]
    for origin in np.unique(origin_N[lost]):
        here = origin_N[lost] == origin
        ids, firsts = (keys.column("id").take(rows[here]) for rows in (lost, kept))
        details = [f"copy of document {first.hex()}" for first in firsts.to_pylist()]
        table = pa.table([ids, ["exact_duplicate"] * len(ids), details], VERDICTS)
        pq.write_table(table, out / f"{inputs[origin].name}.parquet", compression="zstd")
    return {"duplicates": len(lost)}


KEYS_STAGE = Stage("exact_keys", "2", keys_partition)
DUPLICATES_STAGE = Stage("exact_duplicates", "2", duplicates_partition)
