"""What is measured once of a text, for all the rules that ask.

A measurement is made when it is first asked for, and the last text's are kept: rules that follow
each other see the same text. With its n-grams a text costs up to 40 bytes of memory a character.
"""

import functools
from functools import cached_property

import numpy as np

from data_tools.clean import characters
from data_tools.clean.characters import DIGIT, HAN, LETTER, SPACE

CHINESE_SHARE = 0.2
"""Least share of Han characters among letters in a text that is measured as Chinese.

A Chinese word has about 1.6 characters and an English one 4.7, so a text with this share has about
as many Chinese words as others. Chinese prose has 0.9 and more, nine in ten Chinese manual pages
0.24 to 0.70, English pages that quote some Chinese below 0.11.
"""
HAN_IN_A_WORD = 1.6


class Measures:
    """Measurements of one text. Lines are stripped, and empty ones do not count."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def points(self) -> np.ndarray:
        """uint32 code points."""
        return characters.code_points(self.text)

    @cached_property
    def kinds(self) -> np.ndarray:
        """uint8 kind of each character, see `characters`."""
        return characters.kinds()[self.points]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Characters of each kind."""
        counts = np.bincount(self.kinds, minlength=characters.KINDS)
        return tuple(counts.tolist())

    @cached_property
    def visible(self) -> int:
        """Characters that are not white space."""
        return len(self.text) - self.counts[SPACE]

    @cached_property
    def letters(self) -> int:
        """Letters of all scripts, Han characters included."""
        return self.counts[HAN] + self.counts[LETTER]

    @cached_property
    def han_share(self) -> float:
        """Share of Han characters among the letters."""
        return share(self.counts[HAN], self.letters)

    @cached_property
    def is_chinese(self) -> bool:
        """Whether rules take their Chinese form, and look at characters instead of words."""
        return self.han_share >= CHINESE_SHARE

    @cached_property
    def words(self) -> list[str]:
        """What stands between white space."""
        return self.text.split()

    @cached_property
    def word_starts(self) -> np.ndarray:
        """Where each of `words` begins."""
        visible = self.kinds != SPACE
        return np.flatnonzero(visible & ~np.concatenate(([False], visible[:-1])))

    @cached_property
    def word_count(self) -> float:
        """Words of all scripts: runs of letters, and Han characters / 1.6."""
        letter = self.kinds == LETTER
        runs = int(np.count_nonzero(letter[1:] & ~letter[:-1])) + int(letter[:1].sum())
        return runs + self.counts[HAN] / HAN_IN_A_WORD

    @cached_property
    def lines(self) -> list[str]:
        """Stripped lines that are not empty."""
        return [stripped for line in self.text.split("\n") if (stripped := line.strip())]

    @cached_property
    def units(self) -> np.ndarray:
        """uint64 numbers of what n-grams are made of: characters in Chinese, words elsewhere.

        Of Chinese text the letters and digits; equal words have equal numbers.
        """
        if self.is_chinese:
            kept = (self.kinds == HAN) | (self.kinds == LETTER) | (self.kinds == DIGIT)
            return self.points[kept].astype(np.uint64)
        numbers: dict[str, int] = {}
        found = (numbers.setdefault(word, len(numbers)) for word in self.words)
        return np.fromiter(found, np.uint64, len(self.words))


@functools.lru_cache(maxsize=1)
def measure(text: str) -> Measures:
    """The measurements of a text."""
    return Measures(text)


def share(part: float, whole: float) -> float:
    """part / whole; 0 when there is nothing."""
    return part / whole if whole else 0.0
