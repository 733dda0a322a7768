"""Resident identity numbers (GB 11643): 18 digits with a checksum, 15 in those before 1999."""

import re
from collections.abc import Iterator
from datetime import date

from data_tools.privacy.context import labelled
from data_tools.privacy.region import is_prefecture

LATEST_YEAR = 2026
"""Of birth. Fixed, so that a build does not depend on the day when it runs."""

_EIGHTEEN = re.compile(
    r"(?<![0-9])(?<![0-9]\.)([1-8][0-9]{5})([ -]?)((?:19|20)[0-9]{2})\2?([0-9]{4})"
    r"\2([0-9]{3}[0-9Xx])(?![0-9])"
)
_FIFTEEN = re.compile(r"(?<![0-9A-Za-z_])([1-8][0-9]{5})([0-9]{6})[0-9]{3}(?![0-9A-Za-z_])")
_LABEL = re.compile(
    r"身份证|公民身份|证件号|身份号码|ID ?card|ID ?n(?:o|um)|identity|citizen", re.IGNORECASE
)
_WEIGHTS = tuple(2**i % 11 for i in range(17, 0, -1))


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """18 digits: region, date and MOD 11-2 checksum hold. 15 digits: region, date and context."""
    for match in _EIGHTEEN.finditer(text, start, end):
        region, _, year, day, rest = match.groups()
        born = year + day
        if is_prefecture(region) and _is_date(born) and _checks(region + born + rest):
            yield match.span()
    for match in _FIFTEEN.finditer(text, start, end):
        region, born = match.groups()
        valid = is_prefecture(region) and _is_date(f"19{born}")
        if valid and labelled(text, match.start(), _LABEL):
            yield match.span()


def _is_date(digits: str) -> bool:
    try:
        year = date.fromisoformat(digits).year
    except ValueError:
        return False
    return 1900 <= year <= LATEST_YEAR


def _checks(number: str) -> bool:
    total = sum(w * int(d) for w, d in zip(_WEIGHTS, number, strict=False))
    return "10X98765432"[total % 11] == number[17].upper()
