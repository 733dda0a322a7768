"""Drops documents made of symbols: decoded binaries, drawn tables, emoji walls."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.characters import SYMBOL
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class SymbolRatio:
    """Pictures, boxes, arrows, controls, private and unassigned characters are symbols.

    Text is the rest: letters, marks and digits of every script, punctuation, white space,
    mathematical and currency signs.
    """

    most: float = 0.2
    """Largest share of the characters."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        ratio = share(measure(document.text).counts[SYMBOL], len(document.text))
        if ratio > self.most:
            return Drop("symbol_ratio", f"{ratio:.3f} of it symbols, at most {self.most} allowed")
        return document
