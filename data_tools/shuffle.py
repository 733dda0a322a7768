"""The shuffle stage: tokenized documents to the shard that they belong to, by hash."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.heldout import HeldoutConfig
from data_tools.row_groups import row_groups
from data_tools.stage import Partition, Report, Stage
from data_tools.tokenize import SCHEMA
from jaxlm.data.documents import order_key, shard_of
from jaxlm.data.manifest import Split

SPLITS: tuple[Split, ...] = ("train", "heldout")


@dataclass(frozen=True)
class ShuffleConfig:
    """What decides a document's shard."""

    salt: str
    heldout: HeldoutConfig
    shards: tuple[int, int]
    """Number of shards of the source: train, held-out."""


def bucket_name(split: Split, shard: int) -> str:
    """Output for one shard."""
    return f"{split}-{shard:05d}.parquet"


def shard_counts(tokens: int, shard_tokens: int, fraction: float) -> tuple[int, int]:
    """Shards of (train, heldout) for a source of `tokens`, of which `fraction` is held out: of
    `shard_tokens` each, about, and at least one of either."""
    return (
        max(1, round(tokens * (1 - fraction) / shard_tokens)),
        max(1, round(tokens * fraction / shard_tokens)) if fraction else 0,
    )


def shuffle_partition(partition: Partition[ShuffleConfig], out: Path) -> Report:
    """Writes a table for each shard that this partition has documents of."""
    writers: dict[str, pq.ParquetWriter] = {}
    try:
        for rows in row_groups(partition.inputs["tokens"], SCHEMA.names):
            _scatter(rows, partition.config, out, writers)
    finally:
        for writer in writers.values():
            writer.close()
    return {}


def _scatter(
    rows: pa.Table, config: ShuffleConfig, out: Path, writers: dict[str, pq.ParquetWriter]
) -> None:
    columns = rows.select(["id", "content_hash", "members"]).to_pydict().values()
    names = np.array([_bucket(id, (h, *m), config) for id, h, m in zip(*columns, strict=True)])
    for name in map(str, np.unique(names)):
        if name not in writers:
            writers[name] = pq.ParquetWriter(out / name, SCHEMA, compression="zstd")
        writers[name].write_table(rows.take(np.flatnonzero(names == name)))


def _bucket(id: bytes, content_hashes: tuple[bytes, ...], config: ShuffleConfig) -> str:
    held = config.heldout.holds(content_hashes)
    shard = shard_of(order_key(id, config.salt), config.shards[held])
    return bucket_name(SPLITS[held], shard)


SHUFFLE = Stage("shuffle", "2", shuffle_partition)
