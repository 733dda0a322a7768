"""A work directory in an object store: checkpoints are written there, small files by way of a copy.

Objects are written whole or not at all, and cannot be appended to, so a run writes its small files
on this machine; what has changed is sent every few seconds, and where it must not be lost at once.
Each start fetches them anew: nothing on a machine outlives the process.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from jaxlm import storage, terminal
from jaxlm.errors import EnvironmentProblem, UserError

PREFIX = "jaxlm-workdir-"
PERIOD_S = 5.0
"""Between looks at what has changed."""
BYTES_PER_S = 1e5
"""What a file that grows takes of the network at most, since all of it is sent again."""
LAST_S = 10.0
"""For the last files of a process that fails."""
LOCK, PROBE = "lock", ".probe-"
"""Names, and beginnings of names, of what is no file of a run."""


class Mirror:
    """The copy here. Like a path: `mirror / "status.json"` is one of a file."""

    def __init__(self, url: str):
        """`UserError` for a URL that is of no store. Nothing is fetched yet."""
        storage.check(url)
        self.url = url.rstrip("/")
        self._sent: dict[Path, tuple[int, int]] = {}
        """Time and size of files as they were when they were fetched or sent."""
        self._next_s: dict[Path, float] = {}
        """When one may be sent again."""
        self._one_at_a_time = threading.Lock()
        self.guard: Callable[[], None] = lambda: None
        """Called before anything is sent; raises if another process may be writing there."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Path:
        return self._files / name

    @cached_property
    def _files(self) -> Path:
        """The directory here: locked, so that what no process holds any more can be deleted."""
        for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError), _opened(left) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            with contextlib.suppress(FileNotFoundError):
                fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)
                if path.exists():  # nobody took it for one that was left
                    break
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path

    def make(self) -> None:
        """Makes the copy's directory. `EnvironmentProblem` if there can be none."""
        try:
            self._files.stat()
        except OSError as e:
            raise EnvironmentProblem(
                f"{tempfile.gettempdir()}: cannot be written ({e.strerror}); a run in an object "
                "store keeps its small files there: set TMPDIR"
            ) from None

    def fetch(self, directory: str = "") -> None:
        """Fetches the files of a directory of it, those in its directories left out."""
        at = f"{self.url}/{directory}".rstrip("/")
        for name in storage.entries(at)[0]:
            if name == LOCK or name.startswith(PROBE):
                continue
            path = self._files / directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # just deleted
                path.write_bytes(storage.read(f"{at}/{name}"))
                self._sent[path] = _mark(path)

    def send(self, names: Sequence[str] | None = None, soon: bool = False) -> None:
        """Sends what has changed, or of these files alone; what cannot be sent ends the others not.

        `soon`: not what was sent a moment ago and has but grown.
        """
        problem = None
        with self._one_at_a_time:
            self.guard()
            paths = self._files.rglob("*") if names is None else map(self._files.joinpath, names)
            for path in sorted(paths):
                try:
                    self._send(path, soon)
                except FileNotFoundError:  # not there yet, or renamed
                    continue
                except UserError as e:
                    problem = e
        if problem is not None:
            raise problem

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Inside, what changes is sent from time to time; at the end, all of it.

        After an error, as much as can be in `LAST_S`.
        """
        closing = threading.Event()
        thread = threading.Thread(
            target=self._send_often, args=[closing], name="jaxlm-mirror", daemon=True
        )
        thread.start()
        try:
            yield
        except BaseException:
            closing.set()
            self.try_to_send(LAST_S)
            raise
        closing.set()
        thread.join()
        self.send()

    def try_to_send(self, within_s: float) -> None:
        """Sends what can be sent in this time, and says nothing of the rest."""

        def send() -> None:
            with contextlib.suppress(Exception):
                self.send()

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(within_s)

    def _send_often(self, closing: threading.Event) -> None:
        told = False
        while not closing.wait(PERIOD_S):
            try:
                self.send(soon=True)
                told = False
            except (UserError, OSError) as e:
                if not told:
                    terminal.show(f"{e}; training goes on", sys.stderr)
                told = True

    def _send(self, path: Path, soon: bool) -> None:
        mark = _mark(path)
        nothing = mark[1] == 0 and path not in self._sent
        if not path.is_file() or path.suffix == ".tmp" or nothing or self._sent.get(path) == mark:
            return
        if soon and time.monotonic() < self._next_s.get(path, 0.0):
            return
        storage.write(f"{self.url}/{path.relative_to(self._files)}", path.read_bytes())
        self._sent[path] = mark
        self._next_s[path] = time.monotonic() + mark[1] / BYTES_PER_S


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
