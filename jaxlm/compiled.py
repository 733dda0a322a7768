"""Programs that XLA has compiled for the CPU, kept for the next start.

They are machine code, which a start runs as it finds it: so they lie where this user alone can
write, `jaxlm-programs` in $XDG_CACHE_HOME or in ~/.cache, and not in a work directory. A file is a
SHA-256 and what it is the sum of; it has its name once it is whole.

JAX makes the key: the program, the compiler's version and options, the devices. Here the machine is
added, since XLA:CPU compiles for the very processor and JAX's key does not tell one from another.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import stat
import sys
import tempfile
import time
from pathlib import Path

import jax

# JAX's own, in files, takes a torn or damaged one for good: nothing says where else to keep them.
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface
from jaxlib._jax import Device  # jax.Device is a variable to a type checker

from jaxlm import terminal
from jaxlm.errors import EnvironmentProblem

NAME, SUFFIX, PART = "jaxlm-programs", ".program", ".part-"
LIMIT = 2 * 10**9
"""Bytes at most; what was used longest ago is deleted first."""
PART_S = 3600.0
"""A file that was begun so long ago is of a process that was killed."""

_CPUINFO = Path("/proc/cpuinfo")


def keep(device: Device) -> None:
    """From here on what is compiled is kept, and found again, if this process runs on the CPU.

    A directory that the user gave to JAX stands (JAX_COMPILATION_CACHE_DIR), and that he turned
    keeping off (JAX_ENABLE_COMPILATION_CACHE=0). Where nothing can be kept, a line says why.
    """
    given = jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache
    if given or device.platform != "cpu" or isinstance(compilation_cache._cache, Kept):
        return
    try:
        kept = Kept(directory(), machine())
    except EnvironmentProblem as e:
        terminal.show(f"{e}; each start compiles anew", sys.stderr)
        return
    # Also those that compile in no time: a start has a dozen of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache._cache, compilation_cache._cache_initialized = kept, True


def directory() -> Path:
    """Where they lie: made if need be. `EnvironmentProblem` unless it is this user's alone."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    path = Path(home, NAME).absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as e:
        raise EnvironmentProblem(
            f"{path}: compiled programs cannot be kept ({e.strerror})"
        ) from None
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or others:
        raise EnvironmentProblem(
            f"{path}: is not a directory that this user alone can write, and what lies there would "
            "be run; delete it"
        )
    return path


@functools.cache
def machine(cpuinfo: Path = _CPUINFO) -> str:
    """What XLA:CPU compiles for: the processor, its features, and how many of it there are."""
    lines: set[str] = set()
    with contextlib.suppress(OSError):
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
        lines = set(re.findall(r"^(?:model name|flags|Features|CPU \w+)\s*:.*$", text, re.M))
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return "\n".join([platform.machine(), platform.processor(), str(cpus), *sorted(lines)])


class Kept(CacheInterface):
    """Key -> program, as bytes, in a directory; several processes may use it at once."""

    def __init__(self, path: Path, machine: str, limit: int = LIMIT):
        self._path = self._directory = path
        self._machine, self._limit = machine, limit
        self._told = False

    def get(self, key: str) -> bytes | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """None if there is none; one that is damaged is deleted, and is none."""
        path = self._file(key)
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[32:]).digest() == data[:32]:
                with contextlib.suppress(OSError):  # it may be read where nothing can be written
                    os.utime(path)
                return data[32:]
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as e:
            self._tell(e)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keeps it, if it can; the first time that it cannot, a line says so."""
        path = self._file(key)
        if len(value) + 32 > self._limit:
            return
        try:
            self._make_room(len(value) + 32)
            descriptor, part = tempfile.mkstemp(prefix=PART, dir=self._directory)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
                    file.write(hashlib.sha256(value).digest() + value)
                Path(part).replace(path)
            except OSError:
                Path(part).unlink(missing_ok=True)
                raise
        except OSError as e:
            self._tell(e)

    def clear(self) -> None:
        """Deletes them all."""
        for path in self._directory.glob(f"*{SUFFIX}"):
            path.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        name = hashlib.sha256(f"{self._machine}\n{key}".encode()).hexdigest()
        return self._directory / f"{name}{SUFFIX}"

    def _make_room(self, size: int) -> None:
        used: list[tuple[float, int, Path]] = []
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process deletes, too
                found = path.stat()
                if path.suffix == SUFFIX:
                    used.append((found.st_mtime, found.st_size, path))
                elif path.name.startswith(PART) and time.time() - found.st_mtime > PART_S:
                    path.unlink()
        size += sum(bytes for _, bytes, _ in used)
        for _, bytes, path in sorted(used):
            if size <= self._limit:
                break
            path.unlink(missing_ok=True)
            size -= bytes

    def _tell(self, error: OSError) -> None:
        if not self._told:
            why = error.strerror or str(error)
            line = f"{self._directory}: compiled programs cannot be kept ({why})"
            terminal.show(f"{line}; the run goes on", sys.stderr)
        self._told = True
