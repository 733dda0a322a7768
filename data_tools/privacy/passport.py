"""Passports and travel permits: only where the text says so."""

import re
from collections.abc import Iterator

from data_tools.privacy.context import END, labelled

_NUMBER = re.compile(rf"(?<![0-9A-Za-z_])(?:[A-Z]{{1,2}}[0-9]{{7,10}}|[0-9]{{8,9}}){END}")
_LABEL = re.compile(r"(?:护照|通行证|回乡证|台胞证|passport)[^0-9]*$", re.IGNORECASE)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """One or two letters and 7 to 10 digits, or 8 or 9 digits, after the word and before any other
    number."""
    for match in _NUMBER.finditer(text, start, end):
        if labelled(text, match.start(), _LABEL):
            yield match.span()
