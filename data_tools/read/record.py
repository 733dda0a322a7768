"""What a reader yields: a record, or a bad place in a file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data_tools.source import SourceConfig


@dataclass(frozen=True, slots=True)
class Record:
    """One text of a file."""

    text: str
    line: int
    """From 1: of the line (jsonl) or row (parquet); else 1."""
    offset: int
    """See `Document.offset`."""
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bad:
    """A place that gives no document."""

    line: int
    """From 1; 0 when it is the whole file."""
    reason: str
    """A few words without values, so that it can be counted."""
    detail: str = ""
    """The values."""


type Reader = Callable[[Path, SourceConfig], Iterator[Record | Bad]]
"""Raises OSError for a file that cannot be opened or read; never for what is in it."""
