"""The tokenize stage: the documents that stay to token ids, kept a document, without text."""

import functools
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop
from data_tools.drops import Drops, standing
from data_tools.restored import Restored
from data_tools.stage import Partition, Report, Stage
from data_tools.tally import Tally
from jaxlm.data.tokenizer import Tokenizer, open_tokenizer

TOKENS = "tokens.parquet"
"""The output that holds the token ids."""

BATCH_CHARACTERS, BATCH_DOCUMENTS = 1 << 22, 1 << 16
"""Encoded at a time, and written as a row group."""

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
        ("faults", pa.list_(pa.string())),
        ("cluster", pa.binary(16)),
        ("text_bytes", pa.int64()),
        ("tokens", pa.int64()),
        ("ids", pa.large_binary()),
    ]
)
"""`faults`: scored rules that it broke.
`cluster`: its own id when it stays for near duplicates that were dropped, else null.
`ids`: little-endian, of `id_dtype`; without BOS."""


def id_dtype(vocab_size: int) -> np.dtype:
    """uint16 while every id fits, else uint32; little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class Encoded(NamedTuple):
    """Documents with their ids, N of them."""

    documents: Sequence[Document]
    tokens_N: np.ndarray
    """Number of ids of each."""
    ids: np.ndarray
    """Of all of them, end to end."""


def tokenize_partition(partition: Partition[Restored], out: Path) -> Report:
    """Writes tokens.parquet, and dropped.parquet for the documents of verdicts and those that the
    tokenizer does not give back."""
    (model,) = partition.inputs["tokenizer"]
    encoder = _encoder(model.path, model.identity)
    representatives = {
        id
        for file in partition.inputs["representatives"]
        for id in pq.read_table(file.path, columns=["id"])["id"].to_pylist()
    }
    kept, tokens = Tally(), 0
    with _writer(out / TOKENS) as table, Drops(out) as drops:
        for batch in _batches(_kept(partition, drops)):
            encoded = encoder.encode(batch, drops)
            table.write_table(_table(encoded, representatives))
            tokens += len(encoded.ids)
            for document in encoded.documents:
                kept.add(document)
    return {"tokens": tokens} | kept.report() | drops.report()


def _kept(partition: Partition[Restored], drops: Drops) -> Iterator[Document]:
    inputs = partition.inputs
    for found in standing(inputs["documents"], inputs["verdicts"], partition.config):
        if isinstance(found, Document):
            yield found
        else:
            drops.add(*found)


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Encoder:
    """A tokenizer that is held to giving every text back."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer, self._dtype = tokenizer, id_dtype(tokenizer.vocab_size)
        spelling = tokenizer.spelling()
        self._pieces = None
        if spelling is not None:
            buffers = [None, pa.py_buffer(spelling.starts), pa.py_buffer(spelling.data)]
            size = len(spelling.starts) - 1
            self._pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), size, buffers)

    def encode(self, documents: Sequence[Document], drops: Drops) -> Encoded:
        """Ids of the documents, without those (named in `drops`) that decoding would change."""
        texts = [d.text for d in documents]
        encoded = [ids.astype(self._dtype) for ids in self._tokenizer.encode_batch(texts)]
        tokens_N = np.array([len(ids) for ids in encoded])
        ids = np.concatenate(encoded)
        changed = []
        for i in self._suspects(texts, tokens_N, ids):
            decoded = self._tokenizer.decode(encoded[i].tolist())
            if decoded != texts[i]:
                changed.append(i)
                drops.add(documents[i], Drop("round_trip", _difference(texts[i], decoded)))
        if not changed:
            return Encoded(documents, tokens_N, ids)
        stays_N = np.ones(len(texts), bool)
        stays_N[changed] = False
        return Encoded(
            [d for d, stays in zip(documents, stays_N, strict=True) if stays],
            tokens_N[stays_N],
            ids[np.repeat(stays_N, tokens_N)],
        )

    def _suspects(
        self, texts: Sequence[str], tokens_N: np.ndarray, ids: np.ndarray
    ) -> Sequence[int]:
        """The texts that their pieces do not spell; all, where pieces alone do not tell."""
        if self._pieces is None:
            return range(len(texts))
        raw = [text.encode() for text in texts]
        text_ends_N = np.cumsum([len(data) for data in raw])
        _, starts, spelled = self._pieces.take(pa.array(ids)).buffers()
        ends_N = np.frombuffer(starts, np.int64)[np.cumsum(tokens_N)]
        # Bytes alone would not do: text could move from one document to the next.
        if np.array_equal(ends_N, text_ends_N) and spelled.equals(pa.py_buffer(b"".join(raw))):
            return ()
        spelled = spelled.to_pybytes()
        begins = [0, *ends_N[:-1].tolist()]
        found = zip(raw, begins, ends_N.tolist(), strict=True)
        return [i for i, (data, a, b) in enumerate(found) if spelled[a:b] != data]


def _difference(text: str, decoded: str) -> str:
    """Where a text changes on its way through the tokenizer, most often at U+2581."""
    pairs = enumerate(zip(text, decoded, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(text), len(decoded)))
    here = f"U+{ord(text[at]):04X}" if at < len(text) else "the end"
    return f"the tokenizer does not give back {here} at character {at}"


def _table(encoded: Encoded, representatives: Set[bytes]) -> pa.Table:
    documents = encoded.documents
    columns: dict[str, object] = {
        name: [getattr(d, name) for d in documents] for name in SCHEMA.names[:8]
    }
    columns["faults"] = [d.meta.get("faults", "").split() for d in documents]
    columns["cluster"] = [d.id if d.id in representatives else None for d in documents]
    columns["text_bytes"] = [len(d.text.encode()) for d in documents]
    columns["tokens"] = encoded.tokens_N
    starts = np.zeros(len(documents) + 1, np.int64)
    np.cumsum(encoded.tokens_N * encoded.ids.itemsize, out=starts[1:])
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(encoded.ids)]
    ids = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(documents), buffers)
    arrays = [pa.array(columns[f.name], f.type) for f in SCHEMA if f.name != "ids"]
    return pa.table([*arrays, ids], SCHEMA)


def _writer(path: Path) -> pq.ParquetWriter:
    # Ids do not repeat as values: a dictionary of them would only be tried and thrown away.
    return pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=["source", "type", "path"],  # pyright: ignore[reportArgumentType]
        write_statistics=False,
    )


@functools.lru_cache(1)
def _encoder(path: Path, identity: str) -> Encoder:
    tokenizer = open_tokenizer(path)
    assert tokenizer.hash() == identity
    return Encoder(tokenizer)


TOKENIZE = Stage("tokenize", "5", tokenize_partition)
