"""Unified social credit codes (GB 32100): they name organisations, not persons."""

import re
from collections.abc import Iterator

from data_tools.privacy.region import is_registry

_ALPHABET = "0123456789ABCDEFGHJKLMNPQRTUWXY"
_CODE = re.compile(
    "(?<![0-9A-Za-z_])(?<![0-9][.])(?:1[1239]|[248][19]|3[1-59]|5[1239]|[67][129]|9[123]|A[19]"
    rf"|N[1239]|Y1)([0-9]{{6}})([{_ALPHABET}]{{8}})([0-9X])([{_ALPHABET}])(?![0-9A-Za-z_])"
)
"""Registry and kind, division, organisation with its own check character, check character."""
_VALUE = {c: i for i, c in enumerate(_ALPHABET)}
_WEIGHTS = tuple(3**i % 31 for i in range(17))
_ORGANISATION = (3, 7, 9, 10, 5, 8, 4, 2)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """18 characters whose division and MOD 31 checksum hold; of digits alone, those whose
    organisation's checksum (GB 11714) holds too."""
    for match in _CODE.finditer(text, start, end):
        code = match[0]
        division, organisation, check, last = match.groups()
        total = sum(w * _VALUE[c] for w, c in zip(_WEIGHTS, code, strict=False))
        if -total % 31 != _VALUE[last] or not is_registry(division):
            continue
        total = sum(w * _VALUE[c] for w, c in zip(_ORGANISATION, organisation, strict=True))
        if not code.isdigit() or "0123456789X"[-total % 11] == check:
            yield match.span()
