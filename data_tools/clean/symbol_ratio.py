"""Drops documents made of symbols: decoded binaries, drawn tables, emoji walls."""

import functools
import unicodedata
from collections import Counter
from dataclasses import dataclass

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
        if not 0 <= self.most <= 1:
            raise ValueError(f"most={self.most} must be between 0 and 1")

    def __call__(self, document: Document) -> Document | Drop:
        counts = Counter(document.text)
        symbols = sum(n for character, n in counts.items() if _is_symbol(character))
        ratio = symbols / len(document.text)
        if ratio > self.most:
            return Drop("symbol_ratio", f"{ratio:.3f} of it symbols, at most {self.most} allowed")
        return document


@functools.cache
def _is_symbol(character: str) -> bool:
    # other symbols; controls, private use, unassigned
    return not character.isspace() and unicodedata.category(character) in ("So", "Cc", "Co", "Cn")
