"""Drops documents with too many words of a list that the user gives."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ahocorasick

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop


@dataclass(frozen=True)
class SensitiveWords:
    """The share of a text that lies in listed words, upper and lower case alike.

    The file is read when the recipe is: its words are then part of the rule, so a changed list
    makes the documents be looked at again, and workers need no file. A word that begins or ends
    with a Latin letter or a digit matches whole words only.
    """

    file: str = ""
    """UTF-8, one word a line, `#` for comments; relative to where the command runs."""
    words: tuple[str, ...] = ()
    """Words that are given here, and those of the file after them."""
    most: float = 0.01
    """Largest share of the visible characters."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")
        listed = [word.strip().lower() for word in (*self.words, *_read(self.file))]
        if not all(listed):
            raise ValueError("words has an empty one, which would match everywhere; take it out")
        if not listed:
            raise ValueError("file='' and words=(): name a file of words, one a line")
        object.__setattr__(self, "words", tuple(dict.fromkeys(listed)))

    @cached_property
    def _automaton(self) -> ahocorasick.Automaton:
        automaton = ahocorasick.Automaton(ahocorasick.STORE_LENGTH)
        for word in self.words:
            automaton.add_word(word)
        automaton.make_automaton()
        return automaton

    def __call__(self, document: Document) -> Document | Drop:
        text = document.text.lower()
        found = 0
        for last, length in self._automaton.iter_long(text):
            start, end = last - length + 1, last + 1
            if not (_joined(text, start) or _joined(text, end)):
                found += length
        ratio = share(found, measure(document.text).visible) if found else 0.0
        if ratio > self.most:
            detail = f"{ratio:.4f} of it sensitive words, at most {self.most} allowed"
            return Drop("sensitive_words", detail)
        return document


def _read(file: str) -> list[str]:
    if not file:
        return []
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"file={file!r} cannot be read: {e}; give UTF-8, one word a line") from e
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _joined(text: str, place: int) -> bool:
    """Whether Latin letters or digits stand on both sides of a place."""
    if not 0 < place < len(text):
        return False
    around = text[place - 1 : place + 1]
    return around.isascii() and around.isalnum()
