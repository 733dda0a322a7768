"""Drops documents that repeat their own lines."""

from collections import Counter
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class DuplicateLines:
    """Each line after its first appearance is a repeat. A repeated paragraph repeats its lines.

    Lines without a letter or a digit, such as the borders of a table, are layout and no repeats.
    """

    most_lines: float = 0.287
    """Largest share of the lines: FineWeb-2's for Chinese; Gopher has 0.30."""
    most_characters: float = 0.2
    """Largest share of the characters in lines: Gopher's."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most_lines", "most_characters")

    def __call__(self, document: Document) -> Document | Drop:
        lines = measure(document.text).lines
        repeats = [(line, n - 1) for line, n in Counter(lines).items() if n > 1 and _says(line)]
        count = sum(n for _, n in repeats)
        characters = sum(len(line) * n for line, n in repeats)
        for of, part, whole, most in (
            ("lines", count, len(lines), self.most_lines),
            ("characters", characters, sum(map(len, lines)), self.most_characters),
        ):
            ratio = share(part, whole)
            if ratio > most:
                detail = f"{ratio:.3f} of the {of} in repeated lines, at most {most} allowed"
                return Drop("duplicate_lines", detail)
        return document


def _says(line: str) -> bool:
    return any(map(str.isalnum, line))
