"""Drops lists of teasers: documents whose lines break off."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop

ELLIPSES = ("...", "…", "。。。")


@dataclass(frozen=True)
class EllipsisLines:
    """Gopher's rule."""

    most: float = 0.3
    """Largest share of the lines that end in an ellipsis: Gopher's."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        lines = measure(document.text).lines
        ratio = share(sum(line.endswith(ELLIPSES) for line in lines), len(lines))
        if ratio > self.most:
            detail = f"{ratio:.3f} of the lines end in an ellipsis, at most {self.most} allowed"
            return Drop("ellipsis_lines", detail)
        return document
