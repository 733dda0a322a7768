"""The document table: where each document lies in the shards, and where it came from.

A table lies beside each shard (`documents.parquet` in the shard's directory), its rows in the
order of the shard's token stream. Documents are spread over the shards of a source by `order_key`.

A shard's *stream* is its records without their overlaps: token `i * chunk_tokens + j` is token `j`
of record `i`. A row is a piece of a document: its BOS at `start` and `tokens` tokens of text after
it, which come after `skip` tokens of the document. With packing `concat` a document is one piece;
with `best_fit` one that is longer than a chunk is several, not next to each other.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxlm.data.manifest import Manifest, ManifestError, Shard, Split

TABLE = "documents.parquet"

ROW_GROUP = 4096
"""Rows of a row group: the least that is read. One of 4,096 takes 0.8 ms, one of 65,536 takes 10; a
table of 500,000 rows opens in 0.8 ms and in 0.1."""

OPEN_TABLES, READ_GROUPS = 64, 4
"""Tables kept open, and row groups kept of each."""

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
        ("quality", pa.float64()),
        ("cluster", pa.binary(16)),
        ("skip", pa.int64()),
    ]
)
"""`key` is `order_key(id, salt)`; `cluster` is null unless others were dropped for the document."""


def order_key(id: bytes, salt: str) -> int:
    """64-bit place of a document in its source: the order of the shards, and in a shard."""
    return int.from_bytes(hashlib.blake2b(salt.encode() + id, digest_size=8).digest(), "big")


def shard_of(key: int, shards: int) -> int:
    """Index of the shard, of a source's and split's `shards`, that holds this key."""
    return key * shards >> 64


@dataclass(frozen=True)
class Entry:
    """One row: a document, or a piece of one."""

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
    quality: float
    """Share of the weights of the scored rules that it passed."""
    cluster: str | None
    """Id of its cluster of near duplicates, which is that of the document that stayed: its own."""
    skip: int
    """Text tokens of the document before this piece of it."""


def table_path(root: Path, shard: Shard) -> Path:
    """A shard's table on a disk; `root` is the manifest's directory."""
    return (root / shard.path).with_name(TABLE)


def read_table(root: Path, shard: Shard, columns: Sequence[str]) -> pa.Table:
    """Columns of a shard's table; `root` is the manifest's directory. Raises `ManifestError`."""
    path = table_path(root, shard)
    file = _open(path, shard)
    with _reading(path):
        return file.read(columns=list(columns))


def _open(path: Path, shard: Shard) -> pq.ParquetFile:
    """The table of a shard, if it is the one that the manifest means."""
    with _reading(path):
        size = path.stat().st_size
        if size != shard.table_bytes:
            raise ManifestError(
                f"{path}: {size} bytes, the manifest says {shard.table_bytes}; {_remedy(path)}"
            )
        file = pq.ParquetFile(path)
        named = {name for names in _range(file, "shard") for name in names}
    if not named <= {Path(shard.path).parent.name}:
        raise ManifestError(f"{path}: is the table of {', '.join(named)}; {_remedy(path)}")
    return file


def _remedy(path: Path) -> str:
    return (
        f"restore it, or remove {path.parent} and build the corpus again (`python -m data_tools "
        "verify` tells of all damage)"
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever else stops the reading of a table is damage, which may be anywhere in it."""
    try:
        yield
    except (ManifestError, PermissionError):
        raise
    except FileNotFoundError:
        raise ManifestError(f"{path}: is missing; {_remedy(path)}") from None
    except (OSError, pa.ArrowException, ValueError, TypeError, LookupError, AttributeError) as e:
        raise ManifestError(f"{path}: cannot be read: {e}; {_remedy(path)}") from e


def _range(file: pq.ParquetFile, column: str) -> tuple[list, list]:
    """The least and the greatest value in each row group."""
    index, metadata = SCHEMA.get_field_index(column), file.metadata
    groups = [metadata.row_group(g).column(index) for g in range(metadata.num_row_groups)]
    found = [group.statistics for group in groups]
    return [s.min for s in found], [s.max for s in found]


class Documents:
    """The document tables of a corpus: of each only what is asked for is read.

    Look-ups raise `ManifestError` for a table that is missing, damaged or another shard's.
    """

    def __init__(self, manifest: Manifest, path: Callable[[Shard], Path]):
        """`path` gives a shard's table on this machine."""
        self._manifest = manifest
        self._table = functools.lru_cache(OPEN_TABLES)(lambda shard: _Table(path(shard), shard))

    def by_id(self, id: str) -> list[Entry]:
        """The pieces of the document with this id (32 hex digits), in its order.

        Empty if the corpus has no such document. All lie in one shard.
        """
        wanted = bytes.fromhex(id)
        key = order_key(wanted, self._manifest.setting("pack.salt", str))
        for split in get_args(Split):
            for shards in self._manifest.sources(split).values():
                table = self._table_of(key, [s for s in shards if s.documents])
                found = [e for e in table.with_key(key) if e.id == id] if table else []
                if found:
                    return sorted(found, key=lambda e: e.skip)
        return []

    def in_span(self, shard: Shard, start: int, stop: int) -> list[Entry]:
        """The documents, or pieces, with text in [start, stop) of the shard's stream, in order."""
        return self._table(shard).in_span(start, stop)

    def _table_of(self, key: int, shards: Sequence[Shard]) -> "_Table | None":
        """That of the shard, of one source's, in whose range of keys this one falls."""
        if not shards:
            return None
        # Shards without documents are not listed: then it is not quite the one of `shard_of`.
        at = shard_of(key, len(shards))
        while at > 0 and key < self._table(shards[at]).keys[0]:
            at -= 1
        while at + 1 < len(shards) and key > self._table(shards[at]).keys[1]:
            at += 1
        return self._table(shards[at])


class _Table:
    """One table, which has rows; row groups are read by their statistics."""

    def __init__(self, path: Path, shard: Shard):
        self._path = path
        self._file = _open(path, shard)
        with _reading(self._path):
            self._lows, self._highs = _range(self._file, "key")
            self._starts = np.array(_range(self._file, "start")[0], np.int64)
        self._group = functools.lru_cache(READ_GROUPS)(self._file.read_row_group)

    @property
    def keys(self) -> tuple[int, int]:
        """The least and the greatest."""
        return min(self._lows), max(self._highs)

    def with_key(self, key: int) -> list[Entry]:
        """Rows of this key. They are sorted by it with packing `concat` only."""
        ranges = enumerate(zip(self._lows, self._highs, strict=True))
        groups = [group for group, (low, high) in ranges if low <= key <= high]
        if not groups:
            return []
        with _reading(self._path):
            keys = self._file.read_row_groups(groups, columns=["key"])["key"].to_numpy()
        ends = np.cumsum([self._file.metadata.row_group(group).num_rows for group in groups])
        wanted = np.split(keys == np.uint64(key), ends[:-1])
        parts = zip(groups, wanted, strict=True)
        return [entry for group, part in parts for entry in self._entries(group, part)]

    def in_span(self, start: int, stop: int) -> list[Entry]:
        """Rows with text in [start, stop), in order."""
        # One row at most begins before the span and reaches into it.
        first = max(int(np.searchsorted(self._starts, start, side="right")) - 1, 0)
        found = []
        for group in range(first, int(np.searchsorted(self._starts, stop))):
            with _reading(self._path):
                rows = self._group(group)
                begin = rows["start"].to_numpy() + 1  # behind its BOS
                end = begin + rows["tokens"].to_numpy()
            found += self._entries(group, np.maximum(begin, start) < np.minimum(end, stop))
        return found

    def _entries(self, group: int, wanted: np.ndarray) -> list[Entry]:
        """The wanted rows (bool[N]) of a row group."""
        at = np.flatnonzero(wanted)
        if not at.size:
            return []
        # `Table.take` would import all of pyarrow.compute, which takes longer than the look-up.
        with _reading(self._path):
            rows = self._group(group).drop(["key"]).slice(at[0], at[-1] + 1 - at[0]).to_pylist()
            return [_entry(rows[i]) for i in at - at[0]]


def _entry(row: dict) -> Entry:
    cluster = row["cluster"]
    return Entry(
        **row
        | {
            "id": row["id"].hex(),
            "content_hash": row["content_hash"].hex(),
            "cluster": None if cluster is None else cluster.hex(),
        }
    )
