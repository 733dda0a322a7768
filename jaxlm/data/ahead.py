"""Shards of an object store, fetched before the rows in them are wanted.

The order says which rows come next, so a thread looks a stretch ahead of the batch in use and
fetches the shards that it finds there, the next first. It also closes those that are behind, so
that the cache may delete them. What fails here is not said: whoever wants the shard tries again.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import numpy as np

from jaxlm.data.cache import GB, CacheFull
from jaxlm.data.files import StoredFiles
from jaxlm.data.manifest import Shard
from jaxlm.errors import EnvironmentProblem

LOOK_ROWS = 1 << 18
"""Rows of this process that are looked through ahead of the batch in use: 0.1 s of one core."""
READS = 4
"""Files fetched at once; each may come over several connections."""


class Ahead:
    """Fetches for one stream of batches; a context manager."""

    def __init__(
        self,
        files: StoredFiles,
        batches: Sequence[np.ndarray],
        shards_at: Callable[[np.ndarray], Iterable[Shard]],
        keep_open: Callable[[Callable[[str], bool]], None],
        shards: int,
    ):
        """`shards_at`: those of some positions; `keep_open`: closes all but those of these paths;
        `shards`: so many ahead, see `room_ahead`."""
        self._files, self._batches, self._shards_at = files, batches, shards_at
        self._keep_open, self._shards = keep_open, shards
        self._reached, self._closed = 0, 0
        self._last: dict[str, int] = {}
        """Path of a shard -> the last batch that is known to need it."""
        self._first: dict[str, int] = {}
        """The same of the first, for what is fetched ahead."""
        self._moved, self._stopped = threading.Condition(), False
        self._reads = threading.Semaphore(READS)
        self._thread = threading.Thread(target=self._run, name="jaxlm-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._moved:
            self._stopped = True
            self._moved.notify_all()
        self._thread.join()

    def reach(self, batch: int) -> None:
        """Says which batch is in use."""
        with self._moved:
            self._reached = batch
            self._moved.notify_all()

    def _run(self) -> None:
        # Whatever goes wrong here goes wrong again where the rows are wanted, and is said there.
        with contextlib.suppress(Exception):
            for i in range(len(self._batches)):
                positions = self._batches[i]
                look = LOOK_ROWS // max(len(positions), 1)
                if not self._wait(lambda i=i, look=look: i - self._reached <= look):
                    return
                for shard in self._shards_at(positions):
                    if self._last.get(shard.path, -1) < self._reached:  # not known to be needed
                        self._first[shard.path] = i
                        if not self._wait(lambda: self._outstanding() <= self._shards):
                            return
                        # A daemon: a fetch that goes on does not keep a process from ending.
                        threading.Thread(target=self._fetch, args=(shard, i), daemon=True).start()
                    self._last[shard.path] = i

    def _wait(self, until: Callable[[], bool]) -> bool:
        """Meanwhile closes what is behind; false if the stream has ended."""
        with self._moved:
            while not self._stopped:
                if self._reached > self._closed:
                    self._closed = self._reached
                    self._keep_open(lambda path: self._last.get(path, -1) >= self._reached)
                if until():
                    return True
                self._moved.wait()
        return False

    def _outstanding(self) -> int:
        self._first = {path: i for path, i in self._first.items() if i > self._reached}
        return len(self._first)

    def _fetch(self, shard: Shard, batch: int) -> None:
        """Until it is here, or its batch is, whose reader then fetches it."""
        with contextlib.suppress(Exception):
            while not self._stopped and self._reached <= batch:
                try:
                    with self._reads:
                        self._files.cache.fetch(self._files.stored(shard))
                    return
                except CacheFull:  # until some that are behind are closed
                    with self._moved:
                        self._moved.wait(1.0)


def window_bytes(shards: Sequence[Shard], row_bytes: float, window_rows: int) -> int:
    """What the shards of a source that are in use at once take, at most.

    Rows come from one shuffle window, and near its end from the next: of the shards that these
    touch, all but the first and the last lie inside them. `row_bytes`: at most, of a file.
    """
    largest = sorted((shard.file_bytes for shard in shards), reverse=True)
    return min(sum(largest), sum(largest[:2]) + int(2 * window_rows * row_bytes))


def room_ahead(files: StoredFiles, windows: int, heldout: int, largest: int) -> int:
    """Shards that may be fetched ahead: as configured, or as many as there is room for.

    Bytes of the shards in use at once, of the held-out ones, of the largest. `EnvironmentProblem`
    if the cache, or its disk, cannot hold the first two and one shard more.
    """
    cache, need = files.cache, windows + heldout + largest
    there_is = cache.capacity()
    if there_is < need:
        wants = (
            f"the shards in use at once take up to {windows / GB:.3g} GB, the held-out ones "
            f"{heldout / GB:.3g}, the next one {largest / GB:.3g}"
        )
        if there_is < cache.limit:
            raise EnvironmentProblem(
                f"config.cache.directory={str(cache.directory)!r}: its disk has room for "
                f"{there_is / GB:.3g} GB of the cache, and {wants}; make room there, choose "
                "another disk, or lower config.data.shuffle_window"
            )
        raise EnvironmentProblem(
            f"config.cache.max_gb={cache.limit / GB:.3g}: {wants}; raise it to {need / GB:.3g} at "
            "least, or lower config.data.shuffle_window"
        )
    return min(files.ahead, (there_is - windows - heldout) // largest)
