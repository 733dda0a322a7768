"""What kind of character each code point is."""

import functools
import unicodedata

import numpy as np

SPACE, HAN, LETTER, DIGIT, PUNCTUATION, SIGN, SYMBOL = range(7)
"""Kinds. Letters: those of other scripts than Han, with their marks. Digits: numbers of every
script. Signs: mathematical, currency and modifying signs, and invisible format characters. Symbols:
pictures, boxes, arrows, controls, private and unassigned characters."""
KINDS = 7

_KIND_OF_CATEGORY = {
    **dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me"), LETTER),
    **dict.fromkeys(("Nd", "Nl", "No"), DIGIT),
    **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), PUNCTUATION),
    **dict.fromkeys(("Sm", "Sc", "Sk", "Cf"), SIGN),
    **dict.fromkeys(("So", "Cc", "Co", "Cn", "Cs"), SYMBOL),
    **dict.fromkeys(("Zs", "Zl", "Zp"), SPACE),
}
_HAN = (
    (0x3005, 0x3005),  # 々
    (0x3007, 0x3007),  # 〇
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFD),
)


@functools.cache
def kinds() -> np.ndarray:
    """uint8 array: code point -> kind."""
    table = np.full(0x110000, SYMBOL, np.uint8)
    for start, stop in ((0, 0x20000), (0xE0000, 0xE0200)):  # nothing but Han and symbols elsewhere
        for point in range(start, stop):
            table[point] = _kind(chr(point))
    for first, last in _HAN:
        table[first : last + 1] = HAN
    return table


def _kind(character: str) -> int:
    return SPACE if character.isspace() else _KIND_OF_CATEGORY[unicodedata.category(character)]


def code_points(text: str) -> np.ndarray:
    """uint32 array of a text's code points."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
