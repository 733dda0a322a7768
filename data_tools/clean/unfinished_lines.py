"""Takes lines out of pages that are no sentences."""

import re
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.lines import keep_lines
from data_tools.clean.sentence import ends_sentence
from data_tools.document import Document, Drop

HAN = re.compile("[一-鿿]")


@dataclass(frozen=True)
class UnfinishedLines:
    """C4's line filter: a line stays that ends a sentence and has a few words.

    It takes headings and lists along: FineWeb found that it costs 30% of the text for little.
    """

    words: int = 3
    """Fewest words: C4's."""
    characters: int = 5
    """Fewest Han characters of a line that has not so many words."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "words", "characters")

    def __call__(self, document: Document) -> Document | Drop:
        return keep_lines(document, "unfinished_lines", self._keeps)

    def _keeps(self, line: str) -> bool:
        if not ends_sentence(line):
            return False
        return len(line.split()) >= self.words or len(HAN.findall(line)) >= self.characters
