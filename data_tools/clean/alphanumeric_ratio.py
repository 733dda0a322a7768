"""Drops files with too few letters and digits: data, drawings, machine code."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.characters import DIGIT
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class AlphanumericRatio:
    """For code: white space counts too, as in StarCoder."""

    least: float = 0.25
    """Least share of the characters: StarCoder's."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        ratio = share(measures.letters + measures.counts[DIGIT], len(document.text))
        if ratio < self.least:
            detail = f"{ratio:.3f} of it letters and digits, at least {self.least} wanted"
            return Drop("alphanumeric_ratio", detail)
        return document
