"""Drops documents too short to teach anything."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class MinLength:
    """Counts what is read: white space does not count."""

    characters: int = 100
    """Fewest characters, white space left out. A Chinese character says about as much as four
    Latin ones."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "characters")

    def __call__(self, document: Document) -> Document | Drop:
        found = sum(map(len, document.text.split()))
        if found < self.characters:
            return Drop("min_length", f"{found} characters, at least {self.characters} wanted")
        return document
