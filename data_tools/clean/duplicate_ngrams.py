"""Drops documents that repeat themselves in stretches."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean import ngrams
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class DuplicateNgrams:
    """The share of a text that lies in n-grams which stood earlier in it: Gopher's rule.

    Shares of the words (Gopher: of the characters in them), in Chinese of the characters.
    """

    words: tuple[tuple[int, float], ...] = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )
    """(n, largest share) of word n-grams: Gopher's."""
    characters: tuple[tuple[int, float], ...] = ((8, 0.35), (13, 0.25))
    """The same for character n-grams in Chinese, about five and eight words. FineWeb-2 takes 0.198
    and 0.154 for words, EvalWeb 0.5 for 13 characters; news has up to 0.23 and 0.13, all but one
    in twenty manual pages 0.34 and 0.20."""

    def __post_init__(self) -> None:
        thresholds.ngrams(self, "words", "characters")

    def __call__(self, document: Document) -> Document | Drop:
        measures = measure(document.text)
        limits = self.characters if measures.is_chinese else self.words
        units = measures.units
        for n, most in limits:
            hashes = ngrams.hashes(units, n)
            # most texts are far from the limit: no need to know where their repeats lie
            if ngrams.repeat_count(hashes) * n <= most * len(units):
                continue
            ratio = share(ngrams.covered(ngrams.repeats(hashes), n), len(units))
            if ratio > most:
                detail = f"{ratio:.3f} of it in repeated {n}-grams, at most {most} allowed"
                return Drop("duplicate_ngrams", detail)
        return document
