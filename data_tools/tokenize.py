"""The tokenize stage: the documents that stay to token ids, kept a document, without text."""

import functools
from collections.abc import Iterator
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop
from data_tools.drops import Drops, standing
from data_tools.heldout import read_relatives
from data_tools.restored import Restored
from data_tools.stage import Partition, Report, Stage
from data_tools.tally import Tally
from jaxlm.data.tokenizer import Tokenizer

BATCH = 256
"""Documents a row group."""

SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("content_hash", pa.binary(16)),
        ("read_hash", pa.binary(16)),
        ("source", pa.string()),
        ("type", pa.string()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("quality", pa.float64()),
        ("relatives", pa.list_(pa.binary(16))),
        ("text_bytes", pa.int64()),
        ("tokens", pa.int64()),
        ("ids", pa.large_binary()),
    ]
)
"""`relatives`: `read_hash` of the document's near duplicates.
`ids`: little-endian, of `id_dtype`; without BOS."""


def id_dtype(vocab_size: int) -> np.dtype:
    """uint16 while every id fits, else uint32; little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def tokenize_partition(partition: Partition[Restored], out: Path) -> Report:
    """Writes tokens.parquet, and dropped.parquet for the documents of verdicts and those that the
    tokenizer does not give back."""
    (model,) = partition.inputs["tokenizer"]
    tokenizer = _tokenizer(model.path, model.identity)
    relatives = read_relatives(partition.inputs["relatives"])
    kept, tokens = Tally(), 0
    with (
        pq.ParquetWriter(out / "tokens.parquet", SCHEMA, compression="zstd") as table,
        Drops(out) as drops,
    ):
        for batch in batched(_kept(partition, drops), BATCH):
            rows: list[dict[str, Any]] = [
                row | {"relatives": relatives.get(row["id"], [])}
                for row in _rows(batch, tokenizer, drops, kept)
            ]
            table.write_table(pa.Table.from_pylist(rows, SCHEMA))
            tokens += sum(row["tokens"] for row in rows)
    return {"tokens": tokens} | kept.report() | drops.report()


def _kept(partition: Partition[Restored], drops: Drops) -> Iterator[Document]:
    inputs = partition.inputs
    for found in standing(inputs["documents"], inputs["verdicts"], partition.config):
        if isinstance(found, Document):
            yield found
        else:
            drops.add(*found)


def _rows(
    documents: tuple[Document, ...], tokenizer: Tokenizer, drops: Drops, kept: Tally
) -> Iterator[dict[str, Any]]:
    dtype = id_dtype(tokenizer.vocab_size)
    for document in documents:
        text = document.text
        ids = tokenizer.encode(text)
        decoded = tokenizer.decode(ids)
        if decoded != text:
            drops.add(document, Drop("round_trip", _difference(text, decoded)))
            continue
        kept.add(document)
        yield {name: getattr(document, name) for name in SCHEMA.names[:8]} | {
            "text_bytes": len(text.encode()),
            "tokens": len(ids),
            "ids": np.array(ids, dtype).tobytes(),
        }


def _difference(text: str, decoded: str) -> str:
    """Where a text changes on its way through the tokenizer, most often at U+2581."""
    pairs = enumerate(zip(text, decoded, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(text), len(decoded)))
    here = f"U+{ord(text[at]):04X}" if at < len(text) else "the end"
    return f"the tokenizer does not give back {here} at character {at}"


@functools.lru_cache(1)
def _tokenizer(path: Path, identity: str) -> Tokenizer:
    tokenizer = Tokenizer(path)
    assert tokenizer.hash() == identity
    return tokenizer


TOKENIZE = Stage("tokenize", "3", tokenize_partition)
