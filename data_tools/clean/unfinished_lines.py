"""Takes lines out of pages that are no sentences."""

from dataclasses import dataclass

from data_tools.clean import thresholds
from data_tools.clean.lines import keep_lines
from data_tools.clean.measure import measure
from data_tools.clean.sentence import ends_sentence
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class UnfinishedLines:
    """C4's line filter: a line stays that ends a sentence and has a few words.

    It takes headings and lists along: FineWeb found that it costs 30% of the text for little.
    """

    words: int = 3
    """Fewest words: C4's."""
    characters: int = 5
    """Fewest characters of a line of Chinese text."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "words", "characters")

    def __call__(self, document: Document) -> Document | Drop:
        is_chinese = measure(document.text).is_chinese

        def keep(line: str) -> bool:
            if is_chinese:
                return len(line) >= self.characters and ends_sentence(line)
            return ends_sentence(line) and len(line.split(None, self.words)) >= self.words

        return keep_lines(document, "unfinished_lines", keep)
