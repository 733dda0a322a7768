"""Drops documents whose words are too short or too long to be words."""

from dataclasses import dataclass

import numpy as np

from data_tools import thresholds
from data_tools.clean.characters import DIGIT, HAN, LETTER
from data_tools.clean.measure import Measures, measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class WordLength:
    """The mean length of what stands between white space.

    Chinese has no spaces between words. There the clauses are measured, the runs of letters and
    digits between marks and spaces: keywords have 2 to 4 characters, prose 5 to 15, and text that
    lost its marks more.
    """

    least: float = 3.0
    """Characters of a word: Gopher's."""
    most: float = 10.0
    """Characters of a word: Gopher's."""
    least_clause: float = 2.5
    """Characters of a Chinese clause."""
    most_clause: float = 40.0
    """Characters of a Chinese clause."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "least", "least_clause")
        thresholds.ordered(self, "least", "most")
        thresholds.ordered(self, "least_clause", "most_clause")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        if measures.is_chinese:
            mean, least, most = _clause_length(measures), self.least_clause, self.most_clause
            what = "clause"
        else:
            mean = share(measures.visible, len(measures.word_starts))
            least, most, what = self.least, self.most, "word"
        if mean < least:
            return Drop("word_length", f"{mean:.1f} characters a {what}, at least {least} wanted")
        if mean > most:
            return Drop("word_length", f"{mean:.1f} characters a {what}, at most {most} allowed")
        return document


def _clause_length(measures: Measures) -> float:
    kinds = measures.kinds
    inside = (kinds == HAN) | (kinds == LETTER) | (kinds == DIGIT)
    runs = int(np.count_nonzero(inside[1:] & ~inside[:-1])) + int(inside[:1].sum())
    return share(int(np.count_nonzero(inside)), runs)
