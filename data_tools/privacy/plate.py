"""Vehicle plates (GA 36): ordinary, new energy, and those that end in a word."""

import re
from collections.abc import Iterator

_PLATE = re.compile(
    r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][ ]?[A-HJ-NP-Z][ ·•・.-]?"
    r"(?:[0-9]{5}[A-HJK]|[A-HJK][A-HJ-NP-Z0-9][0-9]{4}|[A-HJ-NP-Z0-9]{4}(?:[A-HJ-NP-Z0-9]|[挂学警港澳]))"
    r"(?![0-9A-Za-z_])"
)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Plates with three digits or more."""
    if text.isascii():
        return
    for match in _PLATE.finditer(text, start, end):
        if sum("0" <= c <= "9" for c in match[0]) >= 3:
            yield match.span()
