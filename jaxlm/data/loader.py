"""Batches on the devices, in order: each process reads the rows its devices need, and no more.

`Loader` reads ahead in a thread: reading and the copy to the devices overlap the step. Which rows a
batch has depends on its position and the skipped windows alone, not on processes, mesh or where the
loader started. Shapes: B rows of T + 1 ids, T = seq_len.
"""

import contextlib
import queue
import threading
import weakref
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxlm.data.skips import NO_SKIPS, Skips
from jaxlm.schema import ConfigError

DEPTH = 2
"""Batches that wait on the devices, besides the one in use and the one on its way."""


class Rows(Protocol):
    """Where rows come from: `source.TrainRows`, `synthetic.SyntheticRows`, and held-out ones."""

    seq_len: int

    def stream(self, batches: Sequence[np.ndarray], /) -> Generator[np.ndarray]:
        """ids[N, T + 1] at each of these batches of positions (int64[N]), perhaps read ahead."""
        ...


class Batch(NamedTuple):
    """One global batch."""

    rows_BT: jax.Array
    """ids[B, T + 1], uint16 or uint32 as stored: cast before any arithmetic."""
    positions_B: np.ndarray
    """int64[B], ascending: of its rows."""
    next_position: int
    """Behind its last row; the run's end if no row is left before it."""

    @property
    def position(self) -> int:
        """Of its first row."""
        return int(self.positions_B[0])


class Loader:
    """Iterates over the batches from `start` to `end`; a context manager, or `close` it."""

    def __init__(
        self,
        source: Rows,
        sharding: NamedSharding,
        batch_size: int,
        start: int,
        end: int,
        skips: Skips = NO_SKIPS,
    ):
        """Batches of the next `batch_size` rows that are not skipped, over all processes, sharded
        as `sharding` (of [B, T + 1]).

        `ConfigError` if the mesh cannot split a batch, or start to end is not whole batches.
        """
        if end < start:
            raise ConfigError(f"start={start} is past end={end}: the run is over; raise its end")
        over = skips.count(start, end) % batch_size
        if over:
            raise ConfigError(
                f"rows {start} to {end}, without the skipped ones, are not whole batches of "
                f"batch_size={batch_size}: {over} are left over; use a batch "
                "size that divides them"
            )
        share = _Share(sharding, batch_size, source.seq_len)
        self._queue: queue.SimpleQueue[Batch | BaseException] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._room, self._owed = threading.Semaphore(DEPTH), False
        stop = threading.Event()
        plan = _Plan(skips, start, end, share)
        # The thread must not hold the loader, or a forgotten one would never be collected.
        thread = threading.Thread(
            target=_fill,
            args=(source, plan, self._queue, self._room, stop),
            name="jaxlm-loader",
            daemon=True,
        )
        self._stop = weakref.finalize(self, _stop, thread, self._queue, self._room, stop)
        thread.start()

    def close(self) -> None:
        """Stops the thread and drops what it has read; also done when collected and at exit."""
        self._stop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """The next batch; raises what reading it raised, now and ever after."""
        if self._error is None:
            if not self._stop.alive:
                raise ValueError("the loader is closed")
            self.read_on()
            item = self._queue.get()
            if not isinstance(item, BaseException):
                self._owed = True
                return item
            self._error = item
            self.close()
        raise self._error

    def read_on(self) -> None:
        """Has a batch read in place of the one that was taken; else the next `__next__` does.

        Called when the step was handed over: reading and dispatch are both Python, and would take
        the interpreter from each other.
        """
        if self._owed:
            self._owed = False
            self._room.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def load(source: Rows, sharding: NamedSharding, positions_B: np.ndarray) -> jax.Array:
    """ids[B, T + 1] at these positions (int64[B]), sharded; each process reads what it needs."""
    share = _Share(sharding, len(positions_B), source.seq_len)
    with contextlib.closing(source.stream([positions_B[share.rows]])) as found:
        return share.place(next(found))


class _Share:
    """Which rows of a batch this process needs, and how they become a global array."""

    def __init__(self, sharding: NamedSharding, batch_size: int, seq_len: int):
        self._sharding, self._shape = sharding, (batch_size, seq_len + 1)
        self.batch_size = batch_size
        spec = sharding.spec[0] if sharding.spec else None
        axes = (spec,) if isinstance(spec, str) else spec or ()
        parts = int(np.prod([sharding.mesh.shape[axis] for axis in axes], dtype=int))
        if batch_size % parts:
            raise ConfigError(
                f"batch_size={batch_size} cannot be split over {'*'.join(axes)}={parts}; use a "
                "multiple of it, or a mesh with fewer devices along these axes"
            )
        needed = set[int]()
        for index in sharding.addressable_devices_indices_map(self._shape).values():
            assert index is not None
            needed.update(range(*index[0].indices(batch_size)))
        self.rows = np.array(sorted(needed), np.int64)
        """int64[N]: the rows, as offsets into the batch."""

    def place(self, local: np.ndarray) -> jax.Array:
        """The rows of a batch, ids[B, T + 1], from those of this process, ids[N, T + 1]."""

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            rows = np.arange(*index[0].indices(self._shape[0]))
            return local[np.searchsorted(self.rows, rows), index[1]]

        return jax.make_array_from_callback(self._shape, self._sharding, part)


class _Plan(Sequence[np.ndarray]):
    """The positions that this process reads for each batch, made when asked for."""

    def __init__(self, skips: Skips, start: int, end: int, share: _Share):
        self._skips, self._end, self._share = skips, end, share
        self._first = skips.rank(np.array([start]))
        self._count = skips.count(start, end) // share.batch_size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self.positions(index)[self._share.rows]

    def positions(self, index: int) -> np.ndarray:
        """int64[B]: those of all processes."""
        size = self._share.batch_size
        return self._skips.at(self._first + index * size + np.arange(size))

    def batch(self, index: int, local: np.ndarray) -> Batch:
        """A batch from the rows of this process."""
        positions_B = self.positions(index)
        last = index + 1 == self._count
        next_position = self._end if last else int(positions_B[-1]) + 1
        return Batch(self._share.place(local), positions_B, next_position)


def _fill(
    source: Rows,
    plan: _Plan,
    out: queue.SimpleQueue,
    room: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """The thread: puts every batch, then StopIteration or what went wrong."""
    local_batches = source.stream(plan)
    try:
        for i, local in zip(range(len(plan)), local_batches, strict=True):
            batch = plan.batch(i, local)
            room.acquire()
            if stop.is_set():
                return
            out.put(batch)
        out.put(StopIteration())
    except BaseException as e:  # whatever it is, it is raised in the thread that asked
        out.put(e)
    finally:
        local_batches.close()


def _stop(
    thread: threading.Thread,
    out: queue.SimpleQueue,
    room: threading.Semaphore,
    stop: threading.Event,
) -> None:
    stop.set()
    room.release()
    thread.join()
    while not out.empty():
        out.get_nowait()
