"""The shuffle stage: the tokenized documents of a partition, sorted by the shard they belong to.

A partition writes one Arrow file, shuffled.arrow, with a record batch for each shard that it has
documents of, in the order of hashes: so a shard reads one batch of each file and nothing else, and
thousands of partitions times thousands of shards are not millions of files.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.drops import VERDICTS
from data_tools.hashes import words
from data_tools.pack.pile import Pile, PileConfig, placed
from data_tools.row_groups import GrowingTable
from data_tools.stage import Partition, Report, Stage
from jaxlm.data.documents import order_key, shard_of

SHUFFLED = "shuffled.arrow"
EXCLUDED = "excluded.parquet"

SCHEMA = pa.schema(
    [
        ("key", pa.uint64()),
        ("id", pa.binary(16)),
        ("content_hash", pa.binary(16)),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("quality", pa.float64()),
        ("cluster", pa.binary(16)),
        ("text_bytes", pa.int64()),
        ("tokens", pa.int64()),
        ("ids", pa.large_binary()),
    ]
)
"""`key` is `order_key(id, salt)`; the others are as in the table of tokens."""

SHARDS = b"shards"
"""Key of the file's metadata: names of the shards in the order of the record batches, as JSON."""


@dataclass(frozen=True)
class ShuffleConfig:
    """What decides a document's shard."""

    piles: PileConfig
    salt: str
    shards: tuple[int, ...]
    """Number of shards of each pile."""


def shard_names(pile: Pile, count: int) -> list[str]:
    """Of the shards of a pile, in order."""
    return [f"{pile.source}.{pile.split}-{k:05d}-of-{count:05d}" for k in range(count)]


def shuffle_partition(partition: Partition[ShuffleConfig], out: Path) -> Report:
    """Writes shuffled.arrow, and excluded.parquet (`drops.VERDICTS`) when documents are excluded.

    The report counts what is excluded by reason, and has for each shard with documents here the
    hash of its rows. Holds the partition's ids in memory, and those of one shard beside them.
    """
    (file,) = partition.inputs["tokens"]
    rows = pq.read_table(file.path).combine_chunks()
    config = partition.config
    keys = [order_key(id, config.salt) for id in rows["id"].to_pylist()]
    with GrowingTable(out / EXCLUDED, VERDICTS) as excluded:
        shard_N, counts = _shards(rows, keys, config, excluded)
    keys_N = np.array(keys, np.uint64)
    rows = rows.append_column("key", pa.array(keys_N)).select(SCHEMA.names)
    id_N2 = words(rows["id"])
    order = np.lexsort((id_N2[:, 1], id_N2[:, 0], keys_N, shard_N))
    order = order[np.count_nonzero(shard_N < 0) :]
    present, starts = np.unique(shard_N[order], return_index=True)
    piles = zip(config.piles.piles, config.shards, strict=True)
    every = [name for pile, count in piles for name in shard_names(pile, count)]
    names = [every[k] for k in present.tolist()]
    hashes = {}
    schema = SCHEMA.with_metadata({SHARDS: json.dumps(names).encode()})
    with pa.OSFile(str(out / SHUFFLED), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for name, (start, stop) in zip(names, pairwise([*starts, len(order)]), strict=True):
            batch = rows.take(order[start:stop]).combine_chunks().to_batches()[0]
            hashes[name] = _hash(batch)
            writer.write_batch(batch)
    return {"excluded": counts, "shards": hashes}


def _shards(
    rows: pa.Table, keys: Sequence[int], config: ShuffleConfig, excluded: GrowingTable
) -> tuple[np.ndarray, Mapping[str, Mapping[str, int]]]:
    """int64[N]: number of each document's shard among all, -1 for one that is excluded; counts of
    those by reason."""
    first = np.cumsum([0, *config.shards]).tolist()
    shard_N = np.full(len(rows), -1, np.int64)
    counts: dict[str, dict[str, int]] = {}
    for i, (place, key) in enumerate(zip(placed(rows, config.piles), keys, strict=True)):
        if isinstance(place, int):
            shard_N[i] = first[place] + shard_of(key, config.shards[place])
            continue
        row = rows.select(["id", "text_bytes", "tokens"]).slice(i, 1).to_pylist()[0]
        excluded.add({"id": row["id"], "rule": place.rule, "detail": place.detail})
        count = counts.setdefault(place.rule, {"documents": 0, "text_bytes": 0, "tokens": 0})
        count["documents"] += 1
        count["text_bytes"] += row["text_bytes"]
        count["tokens"] += row["tokens"]
    return shard_N, counts


def _hash(batch: pa.RecordBatch) -> str:
    """Of its rows: 32 hex digits."""
    state = hashlib.blake2b(digest_size=16)
    for column in batch.columns:
        for buffer in column.buffers():
            state.update(f"{'none' if buffer is None else buffer.size} ".encode())
            state.update(buffer or b"")
    return state.hexdigest()


def read_shuffled(path: Path, shard: str) -> pa.RecordBatch:
    """The documents of one shard, of those in a file; only they are read."""
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(json.loads(file.schema.metadata[SHARDS]).index(shard))


SHUFFLE = Stage("shuffle", "4", shuffle_partition)
