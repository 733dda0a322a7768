"""The pack stage: the documents of one shard to records and a document table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.hashes import words
from data_tools.pack.best_fit import best_fit
from data_tools.pack.concat import concat
from data_tools.pack.layout import Layout
from data_tools.pack.shards import blocks, write_shard
from data_tools.pack.shuffle import read_shuffled
from data_tools.stage import Input, Partition, Report, Stage
from data_tools.tokenize import id_dtype
from jaxlm.data.documents import ROW_GROUP, SCHEMA, TABLE, order_key
from jaxlm.data.manifest import Packing, Split

CHUNKS = "chunks.array_record"


@dataclass(frozen=True)
class ShardConfig:
    """What a shard depends on, besides its documents."""

    source: str
    """In the corpus."""
    origin: str
    """The recipe's source."""
    type: str
    split: Split
    method: Packing
    salt: str
    chunk_tokens: int
    vocab_size: int
    bos_id: int
    pad_id: int


class ShardDocuments:
    """The documents of a shard, in the order of their hashes; their ids where they were read."""

    def __init__(self, files: Sequence[Input], shard: str, dtype: np.dtype):
        batches = [read_shuffled(i.path, shard) for i in files]
        rows = pa.Table.from_batches([b.drop_columns(["ids"]) for b in batches])
        keys_N = rows["key"].to_numpy()
        id_N2 = words(rows["id"])
        order = np.lexsort((id_N2[:, 1], id_N2[:, 0], keys_N))
        self.rows = rows.take(order)
        """Without `ids`."""
        self.tokens_N: np.ndarray = self.rows["tokens"].to_numpy()
        self._batches = [np.frombuffer(b["ids"].buffers()[2], dtype) for b in batches]
        sizes = [len(b) for b in batches]
        self._batch_N = np.repeat(np.arange(len(sizes)), sizes)[order]
        starts = [np.frombuffer(b["ids"].buffers()[1], np.int64)[:-1] for b in batches]
        self._start_N = np.concatenate(starts)[order] // dtype.itemsize

    def piece(self, document: int, skip: int, tokens: int) -> np.ndarray:
        """`tokens` ids of a document, after `skip` of them."""
        start = int(self._start_N[document]) + skip
        return self._batches[self._batch_N[document]][start : start + tokens]

    def __len__(self) -> int:
        return len(self.rows)


def pack_partition(partition: Partition[ShardConfig], out: Path) -> Report:
    """Writes chunks.array_record and documents.parquet.

    The report counts text tokens (neither BOS nor PAD), so that they sum up to the documents'.
    Holds the ids of the shard in memory once, and some 200 bytes a document.
    """
    config = partition.config
    dtype = id_dtype(config.vocab_size)
    documents = ShardDocuments(partition.inputs["documents"], partition.name, dtype)
    layout = _layout(documents, config)
    size, bos, pad = config.chunk_tokens, config.bos_id, config.pad_id
    write_shard(out / CHUNKS, blocks(layout, documents.piece, size, bos, pad, dtype), size)
    _write_table(out / TABLE, documents.rows, layout, partition)
    return {
        "source": config.source,
        "origin": config.origin,
        "type": config.type,
        "split": config.split,
        "documents": len(documents),
        "chunks": layout.chunks,
        "tokens": int(documents.tokens_N.sum()),
        "text_bytes": int(documents.rows["text_bytes"].to_numpy().sum()),
        "padding": layout.padding(config.chunk_tokens),
        "truncated": layout.truncated,
    }


def _layout(documents: ShardDocuments, config: ShardConfig) -> Layout:
    if config.method == "concat":
        return concat(documents.tokens_N, config.chunk_tokens)
    ids = documents.rows["id"]

    def place(document: int, skip: int) -> int:
        return order_key(ids[document].as_py() + skip.to_bytes(8), config.salt)

    return best_fit(documents.tokens_N, config.chunk_tokens, place)


def _write_table(
    path: Path, rows: pa.Table, layout: Layout, partition: Partition[ShardConfig]
) -> None:
    rows, count = rows.take(layout.document_P), len(layout.document_P)
    constant = {
        "source": partition.config.origin,
        "type": partition.config.type,
        "split": partition.config.split,
        "shard": partition.name,
    }
    columns = (
        {name: rows[name] for name in SCHEMA.names if name in rows.column_names}
        | {name: pa.repeat(value, count) for name, value in constant.items()}
        | {"start": layout.start_P, "tokens": layout.tokens_P, "skip": layout.skip_P}
    )
    table = pa.table([columns[name] for name in SCHEMA.names], SCHEMA)
    pq.write_table(
        table,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=["source", "type", "split", "shard", "path"],  # pyright: ignore[reportArgumentType]
    )


PACK = Stage("pack", "3", pack_partition)
