"""Drops documents of numbers and marks: tables, price lists, hex dumps."""

from dataclasses import dataclass

import numpy as np

from data_tools import thresholds
from data_tools.clean.characters import HAN, LETTER
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class LetterRatio:
    """Gopher's share of words that hold a letter; in Chinese, the share of characters."""

    least_words: float = 0.8
    """Least share of the words. Gopher's; FineWeb-2 takes 0.735 for Chinese cut into words."""
    least_characters: float = 0.6
    """Least share of the visible characters of Chinese text, which is 0.79 to 0.93 in prose."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least_words", "least_characters")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        if measures.is_chinese:
            ratio, least = share(measures.letters, measures.visible), self.least_characters
            of = "characters"
        else:
            starts = measures.word_starts
            letter = (measures.kinds == LETTER) | (measures.kinds == HAN)
            words = np.logical_or.reduceat(letter, starts) if len(starts) else starts
            ratio, least = share(int(np.count_nonzero(words)), len(starts)), self.least_words
            of = "words"
        if ratio < least:
            detail = f"{ratio:.3f} of the {of} letters, at least {least} wanted"
            return Drop("letter_ratio", detail)
        return document
