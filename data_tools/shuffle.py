"""The shuffle stage: tokenized documents to the shard that they belong to, by hash."""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import batched
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from data_tools.heldout import HeldoutConfig
from data_tools.row_groups import row_groups
from data_tools.stage import Partition, Report, Stage
from data_tools.tokenize import SCHEMA
from jaxlm.data.documents import order_key, shard_of
from jaxlm.data.manifest import Split

OPEN_FILES = 200
"""Tables written side by side: a process may have 1,024 files open, often."""

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
    """Writes a table for each shard that this partition has documents of; reads the documents once
    for every `OPEN_FILES` shards."""
    counts = zip(SPLITS, partition.config.shards, strict=True)
    names = [bucket_name(split, k) for split, count in counts for k in range(count)]
    for some in batched(names, OPEN_FILES):
        _scatter(partition, frozenset(some), out)
    return {}


def _scatter(partition: Partition[ShuffleConfig], wanted: frozenset[str], out: Path) -> None:
    """Writes the tables of the wanted names."""
    writers: dict[str, pq.ParquetWriter] = {}
    with ExitStack() as stack:
        for rows in row_groups(partition.inputs["tokens"], SCHEMA.names):
            columns = rows.select(["id", "read_hash", "relatives"]).to_pydict().values()
            hashed = zip(*columns, strict=True)
            names = np.array([_bucket(id, (h, *r), partition.config) for id, h, r in hashed])
            for name in wanted.intersection(names.tolist()):
                if name not in writers:
                    writer = pq.ParquetWriter(out / name, SCHEMA, compression="zstd")
                    writers[name] = stack.enter_context(writer)
                writers[name].write_table(rows.take(np.flatnonzero(names == name)))


def _bucket(id: bytes, read_hashes: tuple[bytes, ...], config: ShuffleConfig) -> str:
    held = config.heldout.holds(read_hashes)
    shard = shard_of(order_key(id, config.salt), config.shards[held])
    return bucket_name(SPLITS[held], shard)


SHUFFLE = Stage("shuffle", "3", shuffle_partition)
