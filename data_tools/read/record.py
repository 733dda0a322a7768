"""What a reader yields: a record, or a bad place in a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

WHOLE_FILE = "whole file"
"""The place of what concerns no record of a file, but all of it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One text of a file."""

    text: str
    place: str
    """Where it lies, as a person looks for it: "line 12", "byte 4096", "row 3"."""
    offset: int
    """See `Document.offset`."""
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bad:
    """A place that gives no document."""

    place: str
    """As in `Record`, or `WHOLE_FILE`."""
    reason: str
    """A few words without values, so that it can be counted."""
    detail: str = ""
    """The values."""


def too_long(place: str, length: int, limit: int) -> Bad:
    """What every reader says of a record that it does not take into memory: of so many bytes, or
    more where it was not read to its end."""
    return Bad(place, "record too long", f"{length} bytes, max_record_bytes={limit}")
