"""Where training may not join characters to a piece: at the borders of words.

SentencePiece keeps scripts apart by itself, but takes `_` for a sign, so that no `user_id` becomes
a piece; when it lets scripts mix, it joins Han characters with punctuation, and names with
brackets. So the words are cut here: Han characters, letters with underscores, digits and signs are
words each, with the spaces before them; newlines and tabs are signs. Only training sees it: what no
training text joins is no piece, so that the model file alone decides how a text is encoded, in any
library.
"""

import functools

import numpy as np

from data_tools.clean import characters
from data_tools.clean.characters import DIGIT, HAN, LETTER, SIGN, SPACE

BREAK = "\x01"
"""Between two words of a training text; `sample.pieces` leaves it out of the text itself."""


def cut(text: str) -> str:
    """A training text with `BREAK` between its words."""
    points = characters.code_points(text)
    kind = _kinds()[points]
    border = (kind[1:] != kind[:-1]) & (kind[:-1] != SPACE)
    points = np.insert(points, np.flatnonzero(border) + 1, ord(BREAK))
    return points.tobytes().decode("utf-32-le")


@functools.cache
def _kinds() -> np.ndarray:
    """uint8: code point -> kind of word; that of a space is joined to the word behind it."""
    kinds = characters.kinds().copy()
    kinds[~np.isin(kinds, (HAN, LETTER, DIGIT))] = SIGN
    kinds[ord("_")] = LETTER
    kinds[ord(" ")] = SPACE
    return kinds
