"""The pack stage: the documents of one shard, in hash order, to records and a document table."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.shards import write_shard
from data_tools.stage import Partition, Report, Stage
from data_tools.tokenize import id_dtype
from jaxlm.data.documents import SCHEMA, TABLE, order_key
from jaxlm.data.manifest import Split

CHUNKS = "chunks.array_record"


@dataclass(frozen=True)
class ShardConfig:
    """What a shard depends on, besides its documents."""

    source: str
    type: str
    split: Split
    salt: str
    chunk_tokens: int
    vocab_size: int
    bos_id: int
    pad_id: int


def pack_partition(partition: Partition[ShardConfig], out: Path) -> Report:
    """Writes chunks.array_record and documents.parquet; nothing when no document belongs here.

    The report counts text tokens (neither BOS nor PAD), so that they sum up to the documents'.
    """
    config = partition.config
    files = [i.path for i in partition.inputs["documents"]]
    if not files:
        return {"documents": 0}
    rows = pa.concat_tables([pq.read_table(f) for f in files])
    order = sorted(
        (order_key(id, config.salt), id, i) for i, id in enumerate(rows["id"].to_pylist())
    )
    rows = rows.take([i for _, _, i in order])
    keys = np.array([key for key, _, _ in order], np.uint64)
    dtype = id_dtype(config.vocab_size)
    bos = np.array([config.bos_id], dtype)
    stream = np.concatenate(
        [p for ids in rows["ids"] for p in (bos, np.frombuffer(ids.as_py(), dtype))]
    )
    chunk_count = write_shard(out / CHUNKS, stream, config.chunk_tokens, config.pad_id)
    _write_table(out / TABLE, rows, keys, partition)
    tokens = len(stream) - len(rows)
    return {
        "source": config.source,
        "type": config.type,
        "split": config.split,
        "documents": len(rows),
        "chunks": chunk_count,
        "tokens": tokens,
        "text_bytes": sum(rows["text_bytes"].to_pylist()),
        "padding": chunk_count * config.chunk_tokens + 1 - len(stream),
    }


def _write_table(
    path: Path, rows: pa.Table, keys: np.ndarray, partition: Partition[ShardConfig]
) -> None:
    tokens = rows["tokens"].to_numpy()
    spans = tokens + 1  # its BOS
    columns = {name: rows[name] for name in SCHEMA.names if name in rows.column_names}
    columns |= {
        "key": keys,
        "split": [partition.config.split] * len(rows),
        "shard": [partition.name] * len(rows),
        "start": np.cumsum(spans) - spans,
    }
    table = pa.table([columns[name] for name in SCHEMA.names], SCHEMA)
    pq.write_table(table, path, compression="zstd", row_group_size=1 << 16)


PACK = Stage("pack", "1", pack_partition)
