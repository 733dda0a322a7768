"""Files of an object store, kept on this machine: fetched once, whole, and checked.

The cache is a directory that all processes of a machine share. A file lies in it under its SHA-256,
so a shard that two corpora have is there once. It is fetched under another name, compared with its
size and sum, and renamed: what has its name is whole. The locks are the kernel's, on files, and go
with the process that holds them:

NAME.lock  held alone while the file is fetched: other processes wait, and then have it
NAME       held together by whoever reads it: it is not deleted then
lock       held alone while room is made
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jaxlm import storage
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.schema import free

GB = 10**9
PATIENCE_S = 60.0
"""That a fetch waits for other processes to be done with files, where there is no room."""

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class CacheConfig:
    """Where the files of a corpus in an object store are kept on each machine, and how many."""

    directory: str = free("")
    """On a local disk; empty is `jaxlm` in $XDG_CACHE_HOME, or in ~/.cache. It may be deleted when
    nothing runs."""
    max_gb: float = free(100.0)
    """Its size at most, in 10^9 bytes; what was used longest ago is deleted first."""
    ahead: int = free(4)
    """Shards that are fetched before they are needed, if there is room."""

    def __post_init__(self) -> None:
        if self.max_gb <= 0:
            raise ValueError(f"max_gb={self.max_gb}: must be above 0")
        if self.ahead < 0:
            raise ValueError(f"ahead={self.ahead}: must be at least 0")


class CacheFull(EnvironmentProblem):
    """No room, and nothing that may be deleted."""


class Stored(NamedTuple):
    """A file of a store."""

    url: str
    bytes: int
    sha256: str


class Hold:
    """A file that is not deleted while this object lives."""

    def __init__(self, path: Path, descriptor: int | None = None):
        """`descriptor`: of an open file that is locked; it becomes this object's own."""
        self.path = path
        if descriptor is not None:
            weakref.finalize(self, os.close, descriptor)


class Cache:
    """The files here, and the way to get others."""

    def __init__(self, cfg: CacheConfig, patience_s: float = PATIENCE_S):
        """`EnvironmentProblem` if the directory cannot be written."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.directory = Path(cfg.directory).expanduser() if cfg.directory else Path(home, "jaxlm")
        self.limit = int(cfg.max_gb * GB)
        self._patience_s = patience_s
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "lock").touch()
        except OSError as e:
            raise EnvironmentProblem(
                f"config.cache.directory={str(self.directory)!r}: cannot be written "
                f"({e.strerror}); choose a directory on a local disk with room"
            ) from None

    def capacity(self) -> int:
        """Bytes of files that it may come to hold: its limit, or what its disk has for it."""
        used = sum(map(_room, self.directory.glob("*")))
        return min(self.limit, used + shutil.disk_usage(self.directory).free)

    def hold(self, file: Stored, let_go: Callable[[], bool] = lambda: False) -> Hold:
        """The file here, fetched if need be; see `fetch`."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                found = self._hold(file)
                if found is not None:
                    return found
            self.fetch(file, let_go, self._patience_s)

    def fetch(
        self,
        file: Stored,
        let_go: Callable[[], bool] = lambda: False,
        patience_s: float = 0.0,
    ) -> None:
        """Sees to it that the file is here.

        `let_go` drops a hold of this process that it can do without; false if there is none. If it
        does not help, other processes have `patience_s` to let go of theirs; then `CacheFull`.
        Raises `UserError` if what comes is not the file, and what `storage.tried` does.
        """
        path, part = self._path(file), self._part(file)
        with _locked(path.with_name(path.name + ".lock")):
            if path.exists():  # another process was faster
                os.utime(path)  # it is wanted, and so not the next to be deleted
                return
            part.unlink(missing_ok=True)  # of a process that was killed
            deadline_s = time.monotonic() + patience_s
            while (full := self._reserve(file, part, let_go)) is not None:
                if time.monotonic() > deadline_s:
                    raise full
                time.sleep(0.1)
            try:
                storage.download(file.url, part, lambda path: _check(path, file))
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def _hold(self, file: Stored) -> Hold | None:
        path = self._path(file)
        found = Hold(path, descriptor := os.open(path, os.O_RDONLY))
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        there = os.fstat(descriptor)
        if not os.path.samestat(there, path.stat()):  # deleted, and fetched anew, in between
            return None
        if there.st_size != file.bytes:  # by nobody who keeps the rules
            path.unlink()
            return None
        os.utime(path)
        return found

    def _reserve(self, file: Stored, part: Path, let_go: Callable[[], bool]) -> CacheFull | None:
        """Makes room and takes it, if that can be done now."""
        with _locked(self.directory / "lock"):
            while True:
                found = {path: _room(path) for path in self.directory.glob("*")}
                used = sum(found.values())
                if used + file.bytes <= self.limit:
                    part.touch()
                    return None
                if not self._delete_one(found) and not let_go():
                    return CacheFull(
                        f"config.cache.max_gb={self.limit / GB:.3g}: {used / GB:.3g} GB in "
                        f"{self.directory} are in use, and {file.url} takes "
                        f"{file.bytes / GB:.3g} more; raise it to {(used + file.bytes) / GB:.3g} "
                        "at least"
                    )

    def _delete_one(self, found: dict[Path, int]) -> bool:
        """Deletes what was used longest ago, of what nobody uses; false if there is nothing."""
        for path in sorted((p for p, size in found.items() if size), key=_time):
            # A file that is whole is locked by its readers, another one by who fetches it.
            lock = path.with_name(path.name.partition(".")[0] + ".lock") if path.suffix else path
            with contextlib.suppress(OSError), lock.open("rb") as f:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                return True
        return False

    def _path(self, file: Stored) -> Path:
        if not _SHA256.fullmatch(file.sha256):  # it becomes a name here
            raise UserError(
                f"{file.url}: its sha256 in the manifest is {file.sha256[:80]!r}, not 64 hex "
                "digits; restore the manifest, or build the corpus again"
            )
        return self.directory / file.sha256

    def _part(self, file: Stored) -> Path:
        return self.directory / f"{file.sha256}.{file.bytes}.part"


def _room(path: Path) -> int:
    """Bytes that a file takes; of one that is being fetched, those that it will take."""
    if path.suffix == ".part":
        return int(path.name.split(".")[1])
    try:
        return 0 if path.suffix or not path.is_file() else path.stat().st_size
    except FileNotFoundError:  # just renamed, or deleted
        return 0


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _check(path: Path, file: Stored) -> None:
    with path.open("rb") as f:
        size, digest = path.stat().st_size, hashlib.file_digest(f, "sha256").hexdigest()
        os.fsync(f.fileno())
    if (size, digest) != (file.bytes, file.sha256):
        raise storage.Torn(
            f"{size} bytes with SHA-256 {digest[:12]}... came, the manifest says {file.bytes} "
            f"with {file.sha256[:12]}..."
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
