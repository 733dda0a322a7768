"""Drops documents by their quality, the share of scored rules that they passed."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class Quality:
    """Comes last: it sees the scores of the rules before it."""

    least: float = 0.5
    """Least quality."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least")

    def __call__(self, document: Document) -> Document | Drop:
        if document.quality < self.least:
            detail = f"quality {document.quality:.3f}, at least {self.least} wanted"
            return Drop("quality", detail)
        return document
