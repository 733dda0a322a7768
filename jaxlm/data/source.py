"""Rows from the shards of a corpus. The only file that knows Grain and ArrayRecord.

Grain reads ahead along the order that `order.py` gives; it does not decide it. Shapes: N rows of
T + 1 ids, T = seq_len.
"""

import contextlib
import functools
import resource
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

OPEN_SHARDS = 1024
"""Shards kept open, if the process may have four times as many files. Each takes two descriptors at
most and its index in memory, 7 bytes a record; to open one takes 75 ns a record, so that a shard of
512 MB opened for each of its rows would take 10 ms a row."""

PLAN_ROWS = 4096
"""Positions located at once: a row costs 0.3 us so, 93 us in plans of 8 (`bench/order.py`)."""

HELD_OUT_KEY = np.zeros(1, np.uint64)
"""Of the order of held-out rows: the same in every run, so that runs can be compared."""

READ_ROWS = 64
"""Rows read at once, or one batch: of 8 at once, threads would spend half their time on each other.
Rows of 2,048 from a warm cache take 23 us each so, 48 to 120 us in batches of 8."""

READER = "readahead_buffer_size:0,max_parallelism:0,footer_prefetch_bytes:4096"
"""Options: no threads of its own, and no more read than is needed. To open a shard takes 20 us so;
by default its last MB is read with the footer, in 50 to 120 us."""

READ_THREADS, READ_AHEAD = 4, 8
"""Threads that read, and reads of `READ_ROWS` that are done or in work. For storage that takes
milliseconds a read; from a warm cache one thread is as fast."""


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

    def read(self, rows: Sequence[tuple[Shard, int]]) -> np.ndarray:
        """ids[N, T + 1] of these rows. `ManifestError` names a damaged shard and its record."""
        if not rows:
            return np.empty((0, self.seq_len + 1), self.dtype)
        k = self.chunks_per_row
        records = [self._record(shard, row * k + i) for shard, row in rows for i in range(k)]
        ids = np.frombuffer(b"".join(records), self.dtype).reshape(len(rows), k, -1)
        if ids.max() >= self.manifest.vocab_size:
            shard, row = rows[int(ids.max(axis=(1, 2)).argmax())]
            raise ManifestError(
                f"{self.files.name(shard)}: id {ids.max()} in row {row}, the vocabulary "
                f"has {self.manifest.vocab_size}; build the corpus again"
            )
        torn = (ids[:, :-1, -1] != ids[:, 1:, 0]).any(axis=1)
        if torn.any():
            shard, row = rows[int(torn.argmax())]
            raise ManifestError(
                f"{self.files.name(shard)}: the chunks of row {row} do not join: each "
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
        self._open: OrderedDict[str, tuple[ArrayRecordReader, Hold]] = OrderedDict()
        """By path: to hash a whole shard takes longer than the rest of the look-up."""
        files_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = OPEN_SHARDS
        if files_limit != resource.RLIM_INFINITY:
            self._most = min(OPEN_SHARDS, files_limit // 4)

    def __call__(self, shard: Shard) -> ArrayRecordReader:
        with self._lock:
            if shard.path in self._open:
                self._open.move_to_end(shard.path)
                return self._open[shard.path][0]
        hold = self._files.hold(shard, self._close_oldest)
        reader = _open_shard(hold.path, self._files.name(shard), shard)
        with self._lock:
            self._open[shard.path] = reader, hold
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return reader

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Closes all but the wanted ones, by path."""
        with self._lock:
            for path in [path for path in self._open if not wanted(path)]:
                del self._open[path]

    def _close_oldest(self) -> bool:
        """False if none is open."""
        with self._lock:
            return bool(self._open and self._open.popitem(last=False))


def _open_shard(path: Path, name: str, shard: Shard) -> ArrayRecordReader:
    reader = ArrayRecordReader(str(path), options=READER)
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
        source, _, shard, row = (column.tolist() for column in self._locate(positions))
        return self.shards.read(list(zip(map(self.shard, source, shard), row, strict=True)))

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
        rows = np.array([shards.rows_in(shard) for shard in chosen])
        self._ends = np.cumsum(rows)
        self._starts = self._ends - rows

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """ids[N, T + 1] at these positions (int64[N]); padding, which weighs nothing, from len on.

        So whole batches can be made of any number of rows.
        """
        ids = np.full((len(positions), self.seq_len + 1), self.pad_id, self.shards.dtype)
        here = positions < len(self)
        rows = permute(positions[here], len(self), HELD_OUT_KEY)
        shard = np.searchsorted(self._ends, rows, side="right")
        row = rows - self._starts[shard]
        chosen = [self._chosen[s] for s in shard.tolist()]
        ids[here] = self.shards.read(list(zip(chosen, row.tolist(), strict=True)))
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


class _Blocks:
    """Runs of batches as Grain wants them: random access to things that take long to get."""

    def __init__(self, read: Any, batches: Sequence[np.ndarray]):
        self._read, self._batches = read, batches
        rows = len(batches[0]) if len(batches) else 1
        self._size = max(1, READ_ROWS // rows)
        """Batches of a block."""

    def __len__(self) -> int:
        return -(-len(self._batches) // self._size)

    def __getitem__(self, index: int) -> list[np.ndarray]:
        """The batches of a block, read at once; none if one of them cannot be read."""
        block = self.positions(index)
        try:
            ids = self._read(np.concatenate(block))
        except Exception:
            return []
        return np.split(ids, np.cumsum([len(batch) for batch in block[:-1]]))

    def positions(self, index: int) -> list[np.ndarray]:
        """Those of the batches of a block."""
        end = min((index + 1) * self._size, len(self._batches))
        return [self._batches[i] for i in range(index * self._size, end)]


def _read_ahead(read: Any, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
    import grain  # brings JAX along: not for those who only look rows up

    blocks = _Blocks(read, batches)
    dataset = grain.MapDataset.source(blocks)
    options = grain.ReadOptions(num_threads=READ_THREADS, prefetch_buffer_size=READ_AHEAD)
    iterator = iter(dataset.to_iter_dataset(options))
    try:
        for i, found in enumerate(iterator):
            # Batch by batch again: those before the damage are whole, and with it this ends.
            yield from found or map(read, blocks.positions(i))
    finally:
        iterator.close()
