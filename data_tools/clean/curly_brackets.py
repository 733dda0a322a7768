"""Drops pages that are program text or the remains of templates."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class CurlyBrackets:
    """C4's rule, with room for a page that shows a line of code."""

    most: float = 0.0
    """Largest share of the visible characters that are `{`. C4 allows none."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        found = document.text.count("{")
        ratio = share(found, measure(document.text).visible) if found else 0.0
        if ratio > self.most:
            detail = f"{ratio:.4f} of it curly brackets, at most {self.most} allowed"
            return Drop("curly_brackets", detail)
        return document
