"""Drops menus and lists of links: documents of short lines."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class ShortLines:
    """FineWeb's rule; a Han character says about as much as three Latin ones."""

    characters: int = 30
    """A line is short that has no more: FineWeb's."""
    characters_chinese: int = 10
    """The same in Chinese text."""
    most: float = 0.67
    """Largest share of the lines: FineWeb's."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "characters", "characters_chinese")
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        limit = self.characters_chinese if measures.is_chinese else self.characters
        short = sum(len(line) <= limit for line in measures.lines)
        ratio = share(short, len(measures.lines))
        if ratio > self.most:
            detail = (
                f"{ratio:.3f} of the lines have at most {limit} characters, "
                f"at most {self.most} allowed"
            )
            return Drop("short_lines", detail)
        return document
