"""Passports and travel permits: only where the text says so."""

import re
from collections.abc import Iterator

from data_tools.privacy.context import END, labelled

_NUMBER = re.compile(rf"(?<![0-9A-Za-z_])(?:[A-Z]{{1,2}}[0-9]{{7,9}}|[0-9]{{9}}){END}")
_LABEL = re.compile(r"护照|通行证|回乡证|台胞证|passport", re.IGNORECASE)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """One or two letters and 7 to 9 digits, or 9 digits, after the word."""
    for match in _NUMBER.finditer(text, start, end):
        if labelled(text, match.start(), _LABEL):
            yield match.span()
