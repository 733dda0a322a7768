"""Unified social credit codes (GB 32100): they name organisations, not persons."""

import re
from collections.abc import Iterator

from data_tools.privacy.region import is_province

_ALPHABET = "0123456789ABCDEFGHJKLMNPQRTUWXY"
_CODE = re.compile(
    rf"(?<![0-9A-Za-z_])[1-9ANY][{_ALPHABET}][0-9]{{6}}[{_ALPHABET}]{{10}}(?![0-9A-Za-z_])"
)
_VALUE = {c: i for i, c in enumerate(_ALPHABET)}
_WEIGHTS = tuple(3**i % 31 for i in range(17))
_NATION = "10"
"""Stands for the province in codes given by the national registry."""


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """18 characters whose region and MOD 31 checksum hold."""
    for match in _CODE.finditer(text, start, end):
        code = match[0]
        region = code[2:8]
        total = sum(w * _VALUE[c] for w, c in zip(_WEIGHTS, code, strict=False))
        if (31 - total % 31) % 31 != _VALUE[code[17]]:
            continue
        if is_province(region) or region.startswith(_NATION):
            yield match.span()
