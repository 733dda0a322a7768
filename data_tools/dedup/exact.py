"""Exact duplicates: of the documents with one content hash, the one with the smallest id stays.

Two stages, so that no process holds the hashes of the whole corpus. `keys` sorts each partition's
(content hash, id) into buckets by hash; `duplicates` finds, in one bucket of all partitions, the
documents that do not stay, and writes them apart for each partition. Later stages read documents
through `survivors`, so text is not copied for it.

It runs after the cleaning rules: they change text, and only what they leave can be compared so
that no copy is left. Hashing a repaired form before them would cost each document a repair more
than cleaning the duplicates does.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop, read_tables
from data_tools.stage import Input, Partition, Report, Stage

KEYS = pa.schema([("content_hash", pa.binary(16)), ("id", pa.binary(16))])
DUPLICATES = pa.schema([("id", pa.binary(16)), ("kept", pa.binary(16))])


def bucket_name(bucket: int) -> str:
    """Output of `keys` that holds one range of hashes."""
    return f"bucket-{bucket:05d}.parquet"


def duplicates_name(partition: str) -> str:
    """Output of `duplicates` for the documents of one partition."""
    return f"{partition}.parquet"


def keys_partition(partition: Partition[int], out: Path) -> Report:
    """Writes bucket-*.parquet; the config is the number of buckets."""
    tables = [pq.read_table(i.path, columns=KEYS.names) for i in partition.inputs["documents"]]
    keys = pa.concat_tables(tables)
    high = _words(keys, "content_hash")[:, 0] >> np.uint64(32)
    bucket_N = (high * np.uint64(partition.config)) >> np.uint64(32)
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
    hash_N2, id_N2 = _words(keys, "content_hash"), _words(keys, "id")
    order_N = np.lexsort((id_N2[:, 1], id_N2[:, 0], hash_N2[:, 1], hash_N2[:, 0]))
    same_N = np.zeros(len(order_N), bool)
    same_N[1:] = (hash_N2[order_N][1:] == hash_N2[order_N][:-1]).all(1)
    # the first of each run of one hash has the smallest id
    first_N = np.maximum.accumulate(np.where(same_N, 0, np.arange(len(order_N))))
    lost, kept = order_N[same_N], order_N[first_N[same_N]]
    for origin in np.unique(origin_N[lost]):
        here = origin_N[lost] == origin
        columns = [keys.column("id").take(rows[here]) for rows in (lost, kept)]
        table = pa.table(columns, DUPLICATES)
        pq.write_table(table, out / duplicates_name(inputs[origin].name), compression="zstd")
    return {"duplicates": len(lost)}


def _words(keys: pa.Table, column: str) -> np.ndarray:
    """uint64[N, 2] whose order is the order of the 16-byte values."""
    parts = [
        np.frombuffer(chunk.buffers()[1], ">u8")[2 * chunk.offset :][: 2 * len(chunk)]
        for chunk in keys.column(column).chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, ">u8"), *parts]).astype(np.uint64).reshape(-1, 2)


def survivors(
    inputs: Mapping[str, tuple[Input, ...]],
) -> Iterator[Document | tuple[Document, Drop]]:
    """The documents of a partition: those that stay, and the others with their `Drop`."""
    kept: dict[bytes, bytes] = {}
    for file in inputs["duplicates"]:
        table = pq.read_table(file.path)
        kept.update(zip(table["id"].to_pylist(), table["kept"].to_pylist(), strict=True))
    for document in read_tables(i.path for i in inputs["documents"]):
        if document.id in kept:
            detail = f"copy of document {kept[document.id].hex()}"
            yield document, Drop("exact_duplicate", detail)
        else:
            yield document


KEYS_STAGE = Stage("keys", "1", keys_partition)
DUPLICATES_STAGE = Stage("duplicates", "1", duplicates_partition)
