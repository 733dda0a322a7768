"""The document table: where each document lies in the shards, and where it came from.

A table lies beside each shard (`documents.parquet` in the shard's directory), its rows in the
order of the shard's token stream, which is the order of `order_key`: so a document is found by
its id, and the documents of a span of tokens by the span, both by binary search.

A shard's *stream* is its records without their overlaps: token `i * chunk_tokens + j` is token `j`
of record `i`. A document is its BOS at `start` and `tokens` tokens of text after it.
"""

import bisect
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxlm.data.manifest import Manifest, Shard, Split

TABLE = "documents.parquet"

SCHEMA = pa.schema(
    [
        ("key", pa.uint64()),
        ("id", pa.binary(16)),
        ("content_hash", pa.binary(16)),
        ("source", pa.string()),
        ("type", pa.string()),
        ("split", pa.string()),
        ("shard", pa.string()),
        ("start", pa.int64()),
        ("tokens", pa.int64()),
        ("path", pa.string()),
        ("offset", pa.int64()),
    ]
)
"""`key` is `order_key(id, salt)`."""


def order_key(id: bytes, salt: str) -> int:
    """64-bit place of a document in its source: the order of the shards, and in a shard."""
    return int.from_bytes(hashlib.blake2b(salt.encode() + id, digest_size=8).digest(), "big")


def shard_of(key: int, shards: int) -> int:
    """Index of the shard, of a source's and split's `shards`, that holds this key."""
    return key * shards >> 64


@dataclass(frozen=True)
class Entry:
    """One document's row."""

    id: str
    """32 hex digits."""
    content_hash: str
    source: str
    type: str
    split: str
    shard: str
    """Name of the shard: its directory."""
    start: int
    """Of its BOS in the shard's stream."""
    tokens: int
    """Text tokens, which follow the BOS."""
    path: str
    """Raw file, below its source's root."""
    offset: int
    """Of the record in the raw file: bytes (jsonl, decompressed), rows (parquet), else 0."""


class Documents:
    """The document tables of a corpus; each is read when it is first asked for."""

    def __init__(self, root: Path, manifest: Manifest):
        """`root` is the manifest's directory."""
        self._root, self._manifest = root, manifest
        self._columns: dict[tuple[str, str], np.ndarray] = {}

    def by_id(self, id: str) -> Entry | None:
        """The document with this id (32 hex digits), or None when the corpus has none."""
        key = order_key(bytes.fromhex(id), self._manifest.recipe["pack"]["salt"])
        for split in get_args(Split):
            for shards in self._manifest.sources(split).values():
                # a source's shards follow each other in the order of the keys
                at = bisect.bisect_right(shards, key, key=self._first_key) - 1
                if at < 0:
                    continue
                keys = self._column(shards[at], "key")
                first = int(np.searchsorted(keys, np.uint64(key), "left"))
                last = int(np.searchsorted(keys, np.uint64(key), "right"))
                for entry in self._rows(shards[at], first, last):
                    if entry.id == id:
                        return entry
        return None

    def in_span(self, shard: Shard, start: int, stop: int) -> list[Entry]:
        """The documents with a token (or BOS) in [start, stop) of the shard's stream, in order."""
        starts = self._column(shard, "start")
        first = max(int(np.searchsorted(starts, start, "right")) - 1, 0)
        last = int(np.searchsorted(starts, stop, "left"))
        found = self._rows(shard, first, last)
        return [e for e in found if e.start + 1 + e.tokens > start]

    def _path(self, shard: Shard) -> Path:
        return (self._root / shard.path).with_name(TABLE)

    def _first_key(self, shard: Shard) -> int:
        with pq.ParquetFile(self._path(shard)) as file:
            return file.metadata.row_group(0).column(0).statistics.min

    def _column(self, shard: Shard, name: str) -> np.ndarray:
        if (shard.path, name) not in self._columns:
            table = pq.read_table(self._path(shard), columns=[name])
            self._columns[shard.path, name] = table[name].to_numpy()
        return self._columns[shard.path, name]

    def _rows(self, shard: Shard, first: int, last: int) -> list[Entry]:
        """Rows [first, last) of a shard's table; only their row groups are read."""
        found: list[Entry] = []
        if first >= last:
            return found
        with pq.ParquetFile(self._path(shard)) as file:
            base = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if base < last and first < base + size:
                    here = file.read_row_group(group)
                    begin = max(first - base, 0)
                    rows = here.slice(begin, min(last - base, size) - begin).drop(["key"])
                    found += [_entry(row) for row in rows.to_pylist()]
                base += size
        return found


def _entry(row: dict) -> Entry:
    return Entry(**row | {"id": row["id"].hex(), "content_hash": row["content_hash"].hex()})
