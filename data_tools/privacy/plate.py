"""Vehicle plates (GA 36): ordinary, new energy, and those that end in a word."""

import re
from collections.abc import Iterator

_PLATE = re.compile(
    r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][ ]?[A-HJ-Z][ ·•・.-]?"
    r"([0-9]{5}[A-HJK]|[A-HJK][A-HJ-NP-Z0-9][0-9]{4}|[A-HJ-NP-Z0-9]{4}(?:[A-HJ-NP-Z0-9]|[挂学警港澳使领]))"
    r"(?![0-9A-Za-z_])"
)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """At most two letters among the five or six places."""
    if text.isascii():
        return
    for match in _PLATE.finditer(text, start, end):
        places = match[1]
        if sum("A" <= c <= "Z" for c in places) <= 2:
            yield match.span()
