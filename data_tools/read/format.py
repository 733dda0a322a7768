"""A format: how its files are cut into spans, and how the records of a span are read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig


@dataclass(frozen=True)
class Span:
    """Part of a file that begins with a record, from `start` up to `end`.

    Bytes of the file as it lies on disk; rows of Parquet.
    """

    start: int = 0
    end: int | None = None
    """None: the end of the file."""


WHOLE = Span()

type Reader = Callable[[Path, SourceConfig, Span], Iterator[Record | Bad]]
"""Raises OSError with an errno for a file that cannot be opened or read; never for what is in it.

`source.root` is the directory that paths are named from. Records and their offsets do not depend
on how a file was cut.
"""

type Cut = Callable[[Path, int], list[Span]]
"""The spans of a file, of about so many bytes each: together all of it, in order. Whatever bytes it
holds, it is not an error here; raises OSError as a reader does.
"""


def uncut(path: Path, size: int) -> list[Span]:
    """The cut of a format whose file is one record, or can be read only from its start."""
    return [WHOLE]


def nothing_beside(path: Path, root: Path) -> Path | None:
    """Of a format whose records lie in their own file alone."""
    return None


@dataclass(frozen=True)
class Format:
    """An entry of `READERS`."""

    read: Reader
    cut: Cut = uncut
    beside: Callable[[Path, Path], Path | None] = nothing_beside
    """(File, root) -> another file that its records depend on, such as its licence."""
