"""Drops files with a line that no person wrote: minified code, embedded data."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class LongestLine:
    """For code."""

    most: int = 1_000
    """Characters: StarCoder's."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "most")

    def __call__(self, document: Document) -> Document | Drop:
        longest = max(map(len, measure(document.text).lines), default=0)
        if longest > self.most:
            detail = f"a line of {longest} characters, at most {self.most} allowed"
            return Drop("longest_line", detail)
        return document
