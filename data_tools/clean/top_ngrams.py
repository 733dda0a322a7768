"""Drops documents that one phrase fills."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean import ngrams
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class TopNgrams:
    """The share that the most frequent n-gram has in a text: Gopher's rule."""

    words: tuple[tuple[int, float], ...] = ((2, 0.2), (3, 0.18), (4, 0.16))
    """(n, largest share) of word n-grams: Gopher's."""
    characters: tuple[tuple[int, float], ...] = ((3, 0.2), (5, 0.18), (7, 0.16))
    """The same for character n-grams in Chinese: two, three and four words."""

    def __post_init__(self) -> None:
        thresholds.ngrams(self, "words", "characters")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        units = measures.units
        count = len(units)
        for n, most in sorted(self.characters if measures.is_chinese else self.words):
            # a longer n-gram is not more frequent than the shorter ones in it
            if count * n <= most * len(units):
                continue
            count = ngrams.largest_count(ngrams.hashes(units, n))
            ratio = min(1.0, share(count * n, len(units)))
            if count > 1 and ratio > most:
                detail = f"{ratio:.3f} of it one {n}-gram, at most {most} allowed"
                return Drop("top_ngrams", detail)
        return document
