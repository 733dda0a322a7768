"""Drops documents without the small words that hold sentences together: lists, keyword walls."""

import functools
from dataclasses import dataclass

import numpy as np

from data_tools import thresholds
from data_tools.clean import characters
from data_tools.clean.characters import HAN
from data_tools.clean.measure import Measures, measure, share
from data_tools.document import Document, Drop

_ENGLISH = "the be to of and that have with a in is it for on as by this are or from not you"
WORDS = frozenset(_ENGLISH.split())
"""Gopher's eight and others as frequent."""
CHINESE = (
    "的是了在不有和也就都而与被由于为以这那他她它我你们个到上下中说要会可能对从或把所着之其乃曰者"
    "於與為後們個說會對從這來来没沒"
)
"""FineWeb-2's list without the words of dates, and others as frequent, old and modern."""


@dataclass(frozen=True)
class FunctionWords:
    """The share of function words; Gopher's rule asks for two in a document of any length."""

    least: float = 0.05
    """Least share of the words; English prose has 0.2 to 0.4."""
    least_chinese: float = 0.05
    """Least share of the Han characters in Chinese text; prose has 0.12 to 0.30."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least", "least_chinese")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        if measures.is_chinese:
            ratio, least = _chinese_share(measures), self.least_chinese
        else:
            found = sum(word in WORDS for word in map(str.lower, measures.words))
            ratio, least = share(found, len(measures.words)), self.least
        if ratio < least:
            detail = f"{ratio:.3f} of it function words, at least {least} wanted"
            return Drop("function_words", detail)
        return document


def _chinese_share(measures: Measures) -> float:
    found = np.count_nonzero(_is_function_word()[np.minimum(measures.points, 0xFFFF)])
    return share(int(found), measures.counts[HAN])


@functools.cache
def _is_function_word() -> np.ndarray:
    table = np.zeros(0x10000, bool)
    table[characters.code_points(CHINESE)] = True
    return table
