"""Exact duplicates: of the documents of one type and text, the one with the smallest id stays.

Two stages, so that no process holds the hashes of the whole corpus. `exact_keys` sorts content
hash, type and id of each partition's documents into buckets by hash; `exact_duplicates` finds, in
one bucket of all partitions, the documents that do not stay, and writes them apart for each
partition: text is not copied for it.

It runs first, on the text as it was read, and saves the later steps the work. Copies that cleaning
makes equal are left to near dedup, and so are those of other types, whose own rules may drop them;
but a text that is held out in one type goes from the types in which it is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools import thresholds
from data_tools.dedup.node import begins
from data_tools.drops import VERDICTS
from data_tools.hashes import hashes, words
from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
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
    run: Run,
    documents: Sequence[tuple[str, tuple[Input, ...]]],
    config: ExactConfig,
    heldout: HeldoutConfig,
) -> StageResult:
    """Verdicts about the copies among `documents`: (partition, its tables)."""
    keys = run(KEYS_STAGE, [Partition(n, config, {"documents": i}) for n, i in documents])
    partitions = []
    for bucket in range(config.buckets):
        inputs = tuple(i for c in keys.commits for i in c.input(bucket_name(bucket)))
        if inputs:
            partitions.append(Partition(f"bucket-{bucket:05d}", heldout, {"keys": inputs}))
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


def duplicates_partition(partition: Partition[HeldoutConfig], out: Path) -> Report:
    """Writes, for each partition with duplicates in this bucket, their ids and those that stay."""
    inputs = partition.inputs["keys"]
    tables = [pq.read_table(i.path) for i in inputs]
    keys = pa.concat_tables(tables)
    origin_N = np.repeat(np.arange(len(inputs)), [len(t) for t in tables])
    hash_N2, id_N2 = words(keys["content_hash"]), words(keys["id"])
    types = keys["type"].combine_chunks().dictionary_encode()
    type_N = types.indices.to_numpy()
    order_N = np.lexsort((id_N2[:, 1], id_N2[:, 0], type_N, hash_N2[:, 1], hash_N2[:, 0]))
    hash_N2, id_N2, type_N = hash_N2[order_N], id_N2[order_N], type_N[order_N]
    # the first of each run of one hash and type has the smallest id
    kept_N = _firsts(begins(type_N, *hash_N2.T))
    limits = [partition.config.limit_of(name) for name in types.dictionary.to_pylist()]
    limit_N = np.array(limits, np.uint64)[type_N]
    barred_N = np.zeros(len(order_N), bool)
    for rows, held in _held_in_some(hash_N2, limit_N, partition.config):
        barred_N[rows[~held]] = True
        kept_N[rows[~held]] = min(rows[held], key=lambda row: id_N2[row].tolist())
    lost = np.flatnonzero(kept_N != np.arange(len(kept_N)))
    for origin in np.unique(origin_N[order_N[lost]]):
        here = lost[origin_N[order_N[lost]] == origin]
        kept = zip(hashes(id_N2[kept_N[here]]), barred_N[here], strict=True)
        details = [
            f"copy of document {id.hex()}" + (", which is held out" if barred else "")
            for id, barred in kept
        ]
        rules = [HELDOUT_DUPLICATE if barred else "exact_duplicate" for barred in barred_N[here]]
        table = pa.table([hashes(id_N2[here]), rules, details], VERDICTS)
        pq.write_table(table, out / f"{inputs[origin].name}.parquet", compression="zstd")
    return {"duplicates": len(lost)}


def _firsts(begins_N: np.ndarray) -> np.ndarray:
    """int64[N]: where the run of each begins."""
    return np.maximum.accumulate(np.where(begins_N, np.arange(len(begins_N)), 0))


def _held_in_some(
    hash_N2: np.ndarray, limit_N: np.ndarray, config: HeldoutConfig
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (rows, bool: held out) of each text that is held out in some of its types and not in
    all; the rows of a text follow each other."""
    begins_N = begins(*hash_N2.T)
    text_N = _firsts(begins_N)
    for first in np.unique(text_N[limit_N != limit_N[text_N]]).tolist():
        rows = np.arange(first, np.searchsorted(text_N, first, "right"))
        (read_hash,) = hashes(hash_N2[first : first + 1])
        held = limit_N[rows] > config.place(read_hash)
        if held.any() and not held.all():
            yield rows, held


KEYS_STAGE = Stage("exact_keys", "2", keys_partition)
DUPLICATES_STAGE = Stage("exact_duplicates", "3", duplicates_partition)
