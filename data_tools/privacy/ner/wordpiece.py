"""BERT's tokens of a text, with their places in it."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

LONGEST = 100
"""Characters; a longer word is unknown."""


class Token(NamedTuple):
    """Characters `start` to `end` of the text."""

    id: int
    start: int
    end: int


class WordPiece:
    """BERT's tokenization (Devlin et al. 2019): words, Han characters one by one, punctuation
    apart; then the longest pieces of the vocabulary from the left."""

    def __init__(self, vocabulary: Mapping[str, int], lower: bool):
        """`lower`: the vocabulary knows neither capitals nor accents."""
        self._vocabulary = vocabulary
        self._lower = lower
        self._unknown = vocabulary["[UNK]"]

    def __call__(self, text: str) -> list[Token]:
        """The tokens, without [CLS] and [SEP]."""
        return [token for word in self._words(text) for token in self._pieces(word)]

    def _words(self, text: str) -> Iterator[list[tuple[str, int]]]:
        """Words as (character, place) lists: a place can have several characters, or none left."""
        word: list[tuple[str, int]] = []
        for place, original in enumerate(text):
            if original.isspace() or _is_alone(original):
                if word:
                    yield word
                word = []
                if not original.isspace():
                    yield [(c, place) for c in self._normal(original)]
            elif not _is_control(original):
                word += [(c, place) for c in self._normal(original)]
        if word:
            yield word

    def _normal(self, character: str) -> str:
        if not self._lower:
            return character
        parts = unicodedata.normalize("NFD", character.lower())
        return "".join(c for c in parts if unicodedata.category(c) != "Mn")

    def _pieces(self, word: list[tuple[str, int]]) -> list[Token]:
        characters = "".join(c for c, _ in word)
        tokens, at = [], 0
        while at < len(characters) <= LONGEST:
            prefix = "##" if at else ""
            for end in range(len(characters), at, -1):
                id = self._vocabulary.get(prefix + characters[at:end])
                if id is not None:
                    tokens.append(Token(id, word[at][1], word[end - 1][1] + 1))
                    at = end
                    break
            else:
                break
        if at == len(characters):
            return tokens
        return [Token(self._unknown, word[0][1], word[-1][1] + 1)]


def _is_alone(c: str) -> bool:
    """Punctuation, and what is written without spaces: Han characters."""
    code = ord(c)
    han = (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )
    symbol = c.isascii() and c.isprintable() and not c.isalnum() and c != " "
    return han or symbol or unicodedata.category(c).startswith("P")


def _is_control(c: str) -> bool:
    return c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf")
