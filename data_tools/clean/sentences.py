"""Drops documents with too few sentences."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean import sentence
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class Sentences:
    """C4's rule, by the marks of Chinese too."""

    least: int = 3
    """C4 has 5."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "least")

    def __call__(self, document: Document) -> Document | Drop:
        found = sentence.count(document.text)
        if found < self.least:
            return Drop("sentences", f"{found} sentences, at least {self.least} wanted")
        return document
