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
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from jaxlm import storage
from jaxlm.errors import UserError

PREFIX = "jaxlm-workdir-"
PERIOD_S = 5.0
"""Between looks at what has changed."""
BYTES_PER_S = 1e6
"""What a file that grows takes of the network at most, since all of it is sent again."""


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

    def fetch(self, directory: str = "") -> None:
        """Fetches the files of a directory of it, those in its directories left out."""
        at = f"{self.url}/{directory}".rstrip("/")
        for name in storage.entries(at)[0]:
            path = self._files / directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # just deleted
                storage.download(f"{at}/{name}", path)
                self._sent[path] = _mark(path)

    def send(self, soon: bool = False) -> None:
        """Sends what has changed; if `soon`, not what was sent a moment ago and has but grown."""
        with self._one_at_a_time:
            for path in sorted(self._files.rglob("*")):
                with contextlib.suppress(FileNotFoundError):  # renamed, or deleted
                    self._send(path, soon)
            for path in [path for path in self._sent if not path.exists()]:
                storage.delete(self._url_of(path))
                del self._sent[path]

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Inside, what changes is sent from time to time; at the end, all of it."""
        closing = threading.Event()
        thread = threading.Thread(
            target=self._send_often, args=[closing], name="jaxlm-mirror", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            closing.set()
            thread.join()
            self.send()

    def _send_often(self, closing: threading.Event) -> None:
        told = False
        while not closing.wait(PERIOD_S):
            try:
                self.send(soon=True)
                told = False
            except (UserError, OSError) as e:
                if not told:
                    print(f"{e}; training goes on", file=sys.stderr, flush=True)
                told = True

    def _send(self, path: Path, soon: bool) -> None:
        mark = _mark(path)
        if not path.is_file() or path.suffix == ".tmp" or self._sent.get(path) == mark:
            return
        if soon and time.monotonic() < self._next_s.get(path, 0.0):
            return
        storage.upload(path, self._url_of(path))
        self._sent[path] = mark
        self._next_s[path] = time.monotonic() + mark[1] / BYTES_PER_S

    def _url_of(self, path: Path) -> str:
        return f"{self.url}/{path.relative_to(self._files)}"


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
