"""Drops documents whose lines are no sentences: menus, tables, lists of names."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.clean.sentence import ends_sentence
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class EndPunctuation:
    """A line may end in 。！？… and their like, ASCII or full-width, and quotes behind them."""

    least: float = 0.106
    """Least share of the lines: FineWeb-2's for Chinese; FineWeb has 0.12 for English."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least")

    def __call__(self, document: Document) -> Document | Drop:
        lines = measure(document.text).lines
        ratio = share(sum(map(ends_sentence, lines)), len(lines))
        if ratio < self.least:
            detail = f"{ratio:.3f} of the lines end a sentence, at least {self.least} wanted"
            return Drop("end_punctuation", detail)
        return document
