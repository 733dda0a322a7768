"""Drops documents made of digits."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.characters import DIGIT
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class DigitRatio:
    """Numbers of every script count as digits."""

    most: float = 0.2
    """Largest share of the visible characters."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        ratio = share(measures.counts[DIGIT], measures.visible)
        if ratio > self.most:
            return Drop("digit_ratio", f"{ratio:.3f} of it digits, at most {self.most} allowed")
        return document
