"""The form of a text that detectors read: letters and digits in ASCII, nothing of zero width.

Full-width digits, and invisible characters among them, hide a number from a pattern but not from a
reader.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_ODD = re.compile("[０-９Ａ-Ｚａ-ｚ＠\u00ad\u200b-\u200f\u2060\ufeff]")
_ZERO_WIDTH = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_FORMS = {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}


class Shadow(NamedTuple):
    """A text as detectors see it, and where each of its characters stands in the original."""

    text: str
    offsets: Sequence[int]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """A span of the shadow, not empty, as a span of the original."""
        return self.offsets[start], self.offsets[end - 1] + 1


def shadow(text: str) -> Shadow:
    """The text itself when there is nothing to replace."""
    if text.isascii() or not _ODD.search(text):
        return Shadow(text, range(len(text)))
    offsets = [i for i, c in enumerate(text) if c not in _ZERO_WIDTH]
    return Shadow("".join([text[i] for i in offsets]).translate(_FORMS), offsets)
