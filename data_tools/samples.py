"""A few documents of many, for people to look at: those with the smallest ids, chosen by nobody."""

import heapq
from collections.abc import Callable, Iterable

SAMPLES = 6
"""Of each rule or source. A partition keeps as many, so that the choice from all partitions is the
same however documents are cut into them."""
SAMPLE_CHARACTERS = 400
"""Shown of each."""


def first[T](found: Iterable[T], id: Callable[[T], bytes | str]) -> list[T]:
    """The `SAMPLES` with the smallest ids, in their order; ids are hashes."""
    return heapq.nsmallest(SAMPLES, found, key=id)
