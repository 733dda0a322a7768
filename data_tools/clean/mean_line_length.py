"""Drops documents whose lines are too short for prose, or too long for code."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class MeanLineLength:
    """Of the lines that are not empty, white space at their ends left out."""

    least: float = 10.0
    """Characters: EvalWeb's for Chinese; menus and lists of links have less."""
    most: float | None = None
    """Characters: StarCoder takes 100 for code. None: any."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "least")
        if self.most is not None:
            thresholds.ordered(self, "least", "most")

    def __call__(self, document: Document) -> Document | Drop:
        lines = measure(document.text).lines
        mean = share(sum(map(len, lines)), len(lines))
        if mean < self.least:
            detail = f"{mean:.1f} characters a line, at least {self.least} wanted"
            return Drop("mean_line_length", detail)
        if self.most is not None and mean > self.most:
            detail = f"{mean:.1f} characters a line, at most {self.most} allowed"
            return Drop("mean_line_length", detail)
        return document
