"""Drops documents with too few words, or too many."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class WordCount:
    """Counts runs of letters, and 1.6 Han characters as one word: the same measure for all text."""

    least: int = 50
    """Gopher's lower bound."""
    most: int = 100_000
    """Gopher's upper bound."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "least")
        thresholds.ordered(self, "least", "most")

    def __call__(self, document: Document) -> Document | Drop:
        found = measure(document.text).word_count
        if found < self.least:
            return Drop("word_count", f"{found:.0f} words, at least {self.least} wanted")
        if found > self.most:
            return Drop("word_count", f"{found:.0f} words, at most {self.most} allowed")
        return document
