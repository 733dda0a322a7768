"""Drops documents with too few Han characters among their letters."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class HanRatio:
    """For a source that should be Chinese."""

    least: float = 0.3
    """Least share of the letters: EvalWeb's. MNBVC takes 0.7."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least")

    def __call__(self, document: Document) -> Document | Drop:
        ratio = measure(document.text).han_share
        if ratio < self.least:
            detail = f"{ratio:.3f} of the letters Chinese, at least {self.least} wanted"
            return Drop("han_ratio", detail)
        return document
