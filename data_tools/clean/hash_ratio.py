"""Drops documents full of hash signs or ellipses: tag walls, lists of teasers."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class HashRatio:
    """Gopher's symbol-to-word ratio; in Chinese 1.6 characters are a word."""

    most: float = 0.1
    """Largest number of either, for each word: Gopher's."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "most")

    def __call__(self, document: Document) -> Document | Drop:
        text = document.text
        words = measure(text).word_count
        counts = (
            ("hash signs", text.count("#") + text.count("＃")),
            ("ellipses", text.count("...") + text.count("…")),
        )
        for name, count in counts:
            if count > self.most * words:
                ratio = share(count, words) if words else float(count)
                detail = f"{ratio:.3f} {name} a word, at most {self.most} allowed"
                return Drop("hash_ratio", detail)
        return document
