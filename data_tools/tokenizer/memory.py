"""What the training takes of memory: predicted, refused where it cannot fit, and measured."""

import ctypes
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from data_tools.document import DataError
from data_tools.tokenizer.config import TokenizerConfig


@dataclass(frozen=True)
class Cost:
    """Bytes of memory."""

    fixed: int
    narrow: int
    """A character of one byte."""
    wide: int
    """A character of three bytes."""


COSTS = {
    "bpe": Cost(fixed=80_000_000, narrow=20, wide=120),
    "unigram": Cost(fixed=80_000_000, narrow=25, wide=55),
}
"""By kind. They are above what was measured with sentencepiece 0.2.3; MB at the peak (predicted),
for code and for Chinese text:

    bpe      code: 5 MB 134 (196), 20 MB 433 (512), 60 MB 1,066 (1,344);
             Chinese: 3 MB 128 (216), 6.7 MB 239 (380); both: 34 MB 864 (1,034)
    unigram  code: 5 MB 120 (213), 20 MB 462 (595), 60 MB 1,370 (1,609);
             Chinese: 3 MB 54 (143), 6.7 MB 115 (220)
"""
PIECE_BYTES = 1_000
"""A piece of the vocabulary."""

STATUS = Path("/proc/self/status")
CGROUP = Path("/sys/fs/cgroup")


@dataclass
class Peak:
    """Of the process's memory in a stretch of code, above what it had at the start."""

    bytes: int | None = None
    """None where the system does not tell."""


@dataclass(frozen=True)
class Size:
    """Of a sample: what the trainer holds depends on characters, more than on bytes."""

    bytes: int
    characters: int

    @property
    def wide(self) -> int:
        """Characters of three bytes, if the others are of one: Han, mostly."""
        return (self.bytes - self.characters) // 2


def predicted_bytes(config: TokenizerConfig, size: Size) -> int:
    """What a training takes, with a margin; see `COSTS`."""
    cost = COSTS[config.kind]
    narrow = size.characters - size.wide
    text = narrow * cost.narrow + size.wide * cost.wide
    return cost.fixed + config.vocab_size * PIECE_BYTES + text


def check_fits(config: TokenizerConfig, size: Size, available: int | None) -> int:
    """The prediction; `DataError` if it is more than what is `available` (None: not known)."""
    needed = predicted_bytes(config, size)
    if available is None or needed <= available:
        return needed
    least = predicted_bytes(config, Size(0, 0))
    fits = int(size.bytes * max(0, available - least) / (needed - least))
    raise DataError(
        f"config.tokenizer.sample_bytes={config.sample_bytes}: training {config.kind} on "
        f"{size.bytes} bytes of this text takes about {needed / 1e9:.1f} GB, and "
        f"{available / 1e9:.1f} GB are free; set sample_bytes to {fits} or less, or free memory"
    )


def available_bytes() -> int | None:
    """What this process can still take: of the machine, its container and its own limit."""
    found = [_line(Path("/proc/meminfo"), "MemAvailable:"), _container_bytes()]
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    data = _line(STATUS, "VmData:")
    if limit != resource.RLIM_INFINITY and data is not None:
        found.append(limit - data)
    return min((n for n in found if n is not None), default=None)


@contextmanager
def measured() -> Iterator[Peak]:
    """Fills in the peak at the end of the block.

    What the process freed before goes back to the system first: memory that it kept for itself
    would be used again and not be counted.
    """
    peak = Peak()
    _trim()
    before = _line(STATUS, "VmRSS:")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the mark of the peak starts anew
    except OSError:
        before = None
    yield peak
    after = _line(STATUS, "VmHWM:")
    if before is not None and after is not None:
        peak.bytes = after - before


def _container_bytes() -> int | None:
    """What a container's limit leaves; files that it holds in memory make room."""
    try:
        most, now = ((CGROUP / f"memory.{n}").read_text() for n in ("max", "current"))
    except OSError:  # no container, or one of another kind
        return None
    if most.strip() == "max":
        return None
    cached = (_line(CGROUP / "memory.stat", f"{n}_file") for n in ("active", "inactive"))
    return int(most) - int(now) + sum(n or 0 for n in cached)


def _trim() -> None:
    with suppress(AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _line(path: Path, name: str) -> int | None:
    """The number of bytes behind a name."""
    try:
        found = re.search(rf"^{name}\s+(\d+)( kB)?$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << (10 if found[2] else 0) if found else None
