"""A document, what a reader or a rule says when there is none, and how documents travel on disk."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from jaxlm.errors import UserError

ROW_GROUP_BYTES = 16 << 20
"""Text held in memory while a table is written, and read back at a time."""
ROW_BYTES = 512
"""What a document weighs beside its text: a file may hold millions of a few characters."""

DOCUMENTS = "documents.parquet"
"""The output that holds a stage's documents."""

SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("content_hash", pa.binary(16)),
        ("read_hash", pa.binary(16)),
        ("text", pa.large_string()),
        ("source", pa.string()),
        ("type", pa.string()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("meta", pa.string()),
        ("quality", pa.float64()),
    ]
)


class DataError(UserError):
    """Raw data or a work directory that cannot be built from: the value, the rule, the remedy."""


def digest(*parts: str) -> bytes:
    """128-bit hash of strings; their boundaries count."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.digest()


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it came from."""

    id: bytes
    """128-bit hash of (source, path, offset): stable when files are added, distinct for copies."""
    content_hash: bytes
    """128-bit hash of `text`."""
    read_hash: bytes
    """128-bit hash of the text as it was read: no step changes it, so that what is held out does
    not depend on cleaning."""
    text: str
    source: str
    type: str
    path: str
    """Below the source's root."""
    offset: int
    """Of the record: bytes into the decompressed file (jsonl), rows (parquet), else 0."""
    meta: Mapping[str, str]
    quality: float = 1.0
    """Share of the weights of the scored rules that it passed; 1 before and without them."""

    @classmethod
    def make(
        cls, text: str, source: str, type: str, path: str, offset: int, meta: Mapping[str, str]
    ) -> Self:
        """A new document with its hashes; `text` must be encodable as UTF-8."""
        id, hash = digest(source, path, str(offset)), digest(text)
        return cls(id, hash, hash, text, source, type, path, offset, meta)

    def with_text(self, text: str) -> "Document":
        """The same document with another text, and so another content hash."""
        return self if text == self.text else replace(self, text=text, content_hash=digest(text))


@dataclass(frozen=True, slots=True)
class Drop:
    """A rule's verdict that a document does not stay."""

    rule: str
    detail: str
    """What was found and what was allowed."""


class Write(Protocol):
    """Appends one document to a table."""

    def __call__(self, document: Document, /) -> None: ...


@contextmanager
def table_writer(path: Path) -> Iterator[Write]:
    """Writes documents to a Parquet file, a row group for every `ROW_GROUP_BYTES` of text."""
    rows: list[Document] = []
    pending = 0

    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as table:

        def flush() -> None:
            columns = [[_cell(row, name) for row in rows] for name in SCHEMA.names]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
            table.write_table(pa.table(arrays, SCHEMA))
            rows.clear()

        def write(document: Document) -> None:
            nonlocal pending
            rows.append(document)
            pending += len(document.text) + ROW_BYTES
            if pending >= ROW_GROUP_BYTES:
                flush()
                pending = 0

        yield write
        if rows:
            flush()


def _cell(row: Document, name: str) -> object:
    value = getattr(row, name)
    return json.dumps(value, ensure_ascii=False) if name == "meta" else value


def read_tables(paths: Iterable[Path]) -> Iterator[Document]:
    """The documents of Parquet files, in order, one row group in memory at a time."""
    for path in paths:
        with pq.ParquetFile(path) as table:
            for group in range(table.num_row_groups):
                for row in table.read_row_group(group).to_pylist():
                    yield Document(**row | {"meta": json.loads(row["meta"])})
