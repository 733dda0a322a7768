"""Rows from the shards of a corpus. The only file that knows Grain and ArrayRecord.

Grain reads ahead along the order that `order.py` gives; it does not decide it. Shapes: N rows of
T + 1 ids, T = seq_len.
"""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from jaxlm.config import DataConfig
from jaxlm.data.ahead import Ahead, room_ahead, window_bytes
from jaxlm.data.cache import Hold
from jaxlm.data.files import Files, StoredFiles
from jaxlm.data.manifest import ManifestError, Shard, Split
from jaxlm.data.order import Location, Order, Source, Stage
from jaxlm.data.permutation import permute

OPEN_SHARDS = 256
"""Shards kept open: each takes a file descriptor and its index in memory."""

PLAN_ROWS = 4096
"""Positions located at once: a row costs 0.3 us so, 93 us in plans of 8 (`bench/order.py`)."""

HELD_OUT_KEY = np.zeros(1, np.uint64)
"""Of the order of held-out rows: the same in every run, so that runs can be compared."""

READ_THREADS, READ_AHEAD = 4, 8
"""Threads that read, and batches ready or in work. For storage that takes milliseconds a read; from
a warm cache one thread is as fast."""


class Shards:
    """Reads rows of the shards of one split."""

    def __init__(self, files: Files, split: Split, seq_len: int):
        """`ManifestError` if rows of `seq_len` are not whole chunks."""
        self.files, self.manifest, self.seq_len = files, files.manifest, seq_len
        self.chunks_per_row = self.manifest.chunks_per_row(seq_len)
        self.by_source: Mapping[str, list[Shard]] = self.manifest.sources(split)
        self.dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        self.readers = _Readers(files)

    def rows_in(self, shard: Shard) -> int:
        """Whole rows of a shard."""
        return shard.chunks // self.chunks_per_row

    def leftover_chunks(self) -> dict[str, int]:
        """Source -> chunks that no row takes, at the ends of its shards."""
        return {
            name: sum(shard.chunks % self.chunks_per_row for shard in shards)
            for name, shards in self.by_source.items()
        }

    def read(self, shard: Shard, rows: Sequence[int]) -> np.ndarray:
        """ids[N, T + 1] of these rows. `ManifestError` names a damaged shard and its record."""
        k = self.chunks_per_row
        records = [self._record(shard, row * k + i) for row in rows for i in range(k)]
        ids = np.frombuffer(b"".join(records), self.dtype).reshape(len(rows), k, -1)
        if ids.max() >= self.manifest.vocab_size:
            raise ManifestError(
                f"{self.files.name(shard)}: id {ids.max()} in rows {list(rows)}, the vocabulary "
                f"has {self.manifest.vocab_size}; build the corpus again"
            )
        torn = np.flatnonzero((ids[:, :-1, -1] != ids[:, 1:, 0]).any(axis=1))
        if torn.size:
            raise ManifestError(
                f"{self.files.name(shard)}: the chunks of row {rows[torn[0]]} do not join: each "
                "must start with the last token of the one before; build the corpus again"
            )
        return np.concatenate([ids[:, :, :-1].reshape(len(rows), -1), ids[:, -1, -1:]], axis=1)

    def _record(self, shard: Shard, record: int) -> bytes:
        try:
            data = self.readers(shard).read([record])[0]
        except RuntimeError as e:
            raise ManifestError(
                f"{self.files.name(shard)}: record {record} is damaged: {e}; restore the shard, "
                "or build the corpus again"
            ) from None
        size = (self.manifest.chunk_tokens + 1) * self.dtype.itemsize
        if len(data) != size:
            raise ManifestError(
                f"{self.files.name(shard)}: record {record} has {len(data)} bytes, "
                f"chunk_tokens={self.manifest.chunk_tokens} of {self.manifest.dtype} take {size}; "
                "build the corpus again"
            )
        return data


class _Readers:
    """Open shards, those last used, each held as long."""

    def __init__(self, files: Files):
        self._files, self._lock = files, threading.Lock()
        self._open: OrderedDict[Shard, tuple[ArrayRecordReader, Hold]] = OrderedDict()

    def __call__(self, shard: Shard) -> ArrayRecordReader:
        with self._lock:
            if shard in self._open:
                self._open.move_to_end(shard)
                return self._open[shard][0]
        hold = self._files.hold(shard, self._close_oldest)
        reader = _open_shard(hold.path, self._files.name(shard), shard)
        with self._lock:
            self._open[shard] = reader, hold
            while len(self._open) > OPEN_SHARDS:
                self._open.popitem(last=False)
        return reader

    def keep(self, wanted: Callable[[Shard], bool]) -> None:
        """Closes all but the wanted ones."""
        with self._lock:
            for shard in [shard for shard in self._open if not wanted(shard)]:
                del self._open[shard]

    def _close_oldest(self) -> bool:
        """False if none is open."""
        with self._lock:
            return bool(self._open and self._open.popitem(last=False))


def _open_shard(path: Path, name: str, shard: Shard) -> ArrayRecordReader:
    reader = ArrayRecordReader(str(path), options="readahead_buffer_size:0,max_parallelism:0")
    # A damaged file opens all the same, with no records in it.
    if not reader.ok() or reader.num_records() != shard.chunks:
        raise ManifestError(
            f"{name}: {reader.num_records()} readable records, the manifest says {shard.chunks}; "
            "the shard is damaged: restore it or build the corpus again"
        )
    return reader


class TrainRows:
    """The rows of training, by position."""

    def __init__(self, shards: Shards, order: Order, ahead: int = 0):
        """`ahead`: shards of an object store that are fetched before they are needed."""
        self.shards, self.order, self._ahead = shards, order, ahead
        self.seq_len = shards.seq_len
        self.vocab_size = shards.manifest.vocab_size
        self.bos_id, self.pad_id = shards.manifest.bos_id, shards.manifest.pad_id
        self._plan = functools.lru_cache(maxsize=8)(self._locate_plan)

    def fingerprint(self) -> dict[str, Any]:
        """What decides which ids lie at which position, as plain data for JSON."""
        return {
            "manifest": self.shards.manifest.fingerprint(),
            "seq_len": self.seq_len,
            **self.order.fingerprint(),
        }

    def shard(self, source: int, shard: int) -> Shard:
        """The shard that a `Location` of the order names."""
        return self.shards.by_source[self.order.names[source]][shard]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """ids[N, T + 1] at these positions (int64[N]); a pure function."""
        where = self._locate(positions)
        ids = np.empty((len(positions), self.seq_len + 1), self.shards.dtype)
        of_shard: dict[tuple[int, int], list[int]] = {}
        for i, key in enumerate(zip(where.source.tolist(), where.shard.tolist(), strict=True)):
            of_shard.setdefault(key, []).append(i)
        for key, at in of_shard.items():
            ids[at] = self.shards.read(self.shard(*key), where.row[at].tolist())
        return ids

    def stream(self, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
        """`rows` of each of these batches of positions, in turn, read ahead by Grain.

        Shards in an object store are fetched ahead of that.
        """
        files, rows = self.shards.files, _read_ahead(self.rows, batches)
        if not isinstance(files, StoredFiles):
            yield from rows
            return
        with (
            Ahead(files, batches, self._shards_at, self.shards.readers.keep, self._ahead) as ahead,
            contextlib.closing(rows),
        ):
            for i, ids in enumerate(rows):
                ahead.reach(i)
                yield ids

    def _shards_at(self, positions: np.ndarray) -> list[Shard]:
        where = self._locate(positions)
        keys = zip(where.source.tolist(), where.shard.tolist(), strict=True)
        return [self.shard(*key) for key in dict.fromkeys(keys)]

    def _locate(self, positions: np.ndarray) -> Location:
        plan, offset = np.divmod(positions, PLAN_ROWS)
        where = np.empty((len(Location._fields), len(positions)), np.int64)
        for p in np.unique(plan).tolist():
            at = plan == p
            where[:, at] = self._plan(p)[:, offset[at]]
        return Location(*where)

    def _locate_plan(self, plan: int) -> np.ndarray:
        return np.stack(self.order.locate(np.arange(plan * PLAN_ROWS, (plan + 1) * PLAN_ROWS)))


class HeldOutRows:
    """The held-out rows of one type, each once; behind the last one come rows of padding.

    In a fixed shuffled order, so that the first of them are a fair sample of all sources.
    """

    def __init__(self, shards: Shards, chosen: Sequence[Shard]):
        self.shards, self._chosen = shards, chosen
        self.seq_len = shards.seq_len
        self.vocab_size = shards.manifest.vocab_size
        self.bos_id, self.pad_id = shards.manifest.bos_id, shards.manifest.pad_id
        self._ends = np.cumsum([shards.rows_in(shard) for shard in chosen])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """ids[N, T + 1] at these positions (int64[N]); padding, which weighs nothing, from len on.

        So whole batches can be made of any number of rows.
        """
        ids = np.full((len(positions), self.seq_len + 1), self.pad_id, self.shards.dtype)
        here = positions < len(self)
        rows = permute(positions[here], len(self), HELD_OUT_KEY)
        shard, real = np.searchsorted(self._ends, rows, side="right"), np.flatnonzero(here)
        for s in np.unique(shard).tolist():
            at = shard == s
            start = self._ends[s] - self.shards.rows_in(self._chosen[s])
            ids[real[at]] = self.shards.read(self._chosen[s], (rows[at] - start).tolist())
        return ids

    def stream(self, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
        """`rows` of each of these batches of positions, in turn, read ahead by Grain."""
        return _read_ahead(self.rows, batches)


def open_train(files: Files, data: DataConfig, stages: Sequence[Stage]) -> TrainRows:
    """The training rows of a corpus; no stages take each source by its number of rows.

    `ManifestError` if it has not the rows, `OrderError` for stages that do not fit the sources,
    `EnvironmentProblem` for a cache that is too small.
    """
    shards = Shards(files, "train", data.seq_len)
    if not shards.by_source:
        raise ManifestError(f"{data.manifest}: has no training shards; build the corpus again")
    row_bytes = shards.seq_len * shards.dtype.itemsize
    sources = {
        name: Source(
            tuple(shards.rows_in(shard) for shard in listed),
            max(1, data.shuffle_window // row_bytes),
        )
        for name, listed in shards.by_source.items()
    }
    if not stages:
        for name, source in sources.items():
            _check_rows(f"source {name!r}", sum(source.shard_rows), shards)
        weights = tuple((name, float(sum(source.shard_rows))) for name, source in sources.items())
        stages = [Stage(None, weights)]
    order, ahead = Order(sources, stages, data.seed, data.block_rows), 0
    if isinstance(files, StoredFiles):
        used = {name for stage in stages for name, weight in stage.weights if weight}
        windows = {name: sources[name].window_rows for name in used}
        ahead = _room_ahead(shards, files, windows)
    return TrainRows(shards, order, ahead)


def open_heldout(files: Files, seq_len: int) -> dict[str, HeldOutRows]:
    """Type -> its held-out rows; `ManifestError` if a type has held-out text but not one row."""
    shards = Shards(files, "heldout", seq_len)
    by_type: dict[str, list[Shard]] = {}
    for listed in shards.by_source.values():
        for shard in listed:
            by_type.setdefault(shard.type, []).append(shard)
    for name, listed in by_type.items():
        _check_rows(f"held-out {name!r}", sum(map(shards.rows_in, listed)), shards)
    return {name: HeldOutRows(shards, by_type[name]) for name in sorted(by_type)}


def _room_ahead(shards: Shards, files: StoredFiles, window_rows: Mapping[str, int]) -> int:
    """`window_rows`: of the sources that are used."""
    windows, largest = 0, 0
    for name, rows in window_rows.items():
        listed = [shard for shard in shards.by_source[name] if shards.rows_in(shard)]
        row_bytes = max(shard.file_bytes / shards.rows_in(shard) for shard in listed)
        windows += window_bytes(listed, row_bytes, rows)
        largest = max(largest, *(shard.file_bytes for shard in listed))
    heldout = shards.manifest.sources("heldout").values()
    held_out = sum(shard.file_bytes for listed in heldout for shard in listed)
    return room_ahead(files, windows, held_out, largest)


def _check_rows(what: str, rows: int, shards: Shards) -> None:
    if not rows:
        raise ManifestError(
            f"{what} has not one row of seq_len={shards.seq_len}: no shard has "
            f"{shards.chunks_per_row} chunks; lower seq_len, or build the corpus with more text"
        )


class _Batches:
    """A list of batches as Grain wants it: random access to things that take long to get."""

    def __init__(self, read: Any, batches: Sequence[np.ndarray]):
        self._read, self._batches = read, batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._read(self._batches[index])


def _read_ahead(read: Any, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
    import grain  # brings JAX along: not for those who only look rows up

    dataset = grain.MapDataset.source(_Batches(read, batches))
    options = grain.ReadOptions(num_threads=READ_THREADS, prefetch_buffer_size=READ_AHEAD)
    iterator = iter(dataset.to_iter_dataset(options))
    # An iterator of Grain skips an element that failed, so nothing may follow an exception; a
    # generator ends with it.
    try:
        yield from iterator
    finally:
        iterator.close()
