"""A span of private data, and what finds it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

ENTITIES = (
    "icd10",
    "resident_id",
    "email",
    "uscc",
    "bank_card",
    "ip",
    "mobile",
    "landline",
    "passport",
    "plate",
    "wechat",
    "qq",
    "person",
    "place",
    "organisation",
)
"""Types of private data, in order of trust: of two that overlap, the first one stands."""

NAMED = ENTITIES[-3:]
"""Those that only a model of named entities finds."""


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int
    entity: str
    """One of `ENTITIES`."""


type Find = Callable[[str, int, int], Iterator[tuple[int, int]]]
"""(text, start, end) -> (start, end) of each hit there; looks at the text around it for context.

The text is a shadow: full-width letters and digits are ASCII in it.
"""

type Recogniser = Callable[[str], Iterable[Span]]
"""A model of named entities: text -> spans of persons, places and organisations."""
