"""Which evaluation sets must not be in the training text, and how much of them is too much."""

import re
from dataclasses import dataclass
from typing import Literal

from data_tools import thresholds


@dataclass(frozen=True)
class EvaluationConfig:
    """One evaluation set: a file of texts."""

    name: str = ""
    """As verdicts name it: letters, digits, underscores and dashes."""
    path: str = ""
    """Relative to the work directory, or absolute."""
    format: Literal["jsonl", "txt"] = "jsonl"
    """jsonl: an object a line; txt: a text a line. UTF-8."""
    fields: tuple[str, ...] = ("text",)
    """jsonl: fields that hold a text, each looked for by itself (a question, its answer)."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.name):
            raise ValueError(f"name={self.name!r}: use letters, digits, underscores and dashes")
        if not self.path:
            raise ValueError("path='' must not be empty; name the file of the set")
        if self.format == "jsonl" and not self.fields:
            raise ValueError("fields=(): name at least one field of the objects")


@dataclass(frozen=True)
class DecontaminateConfig:
    """Documents that share runs of words or characters with an evaluation set go.

    Case, width, punctuation and white space do not count. A text of a set that is shorter than one
    run cannot be looked for; the report counts these.
    """

    sets: tuple[EvaluationConfig, ...] = ()
    """Empty: no document goes."""
    words: int = 13
    """Length of a run that begins with a word."""
    characters: int = 20
    """Length of a run that begins with a character of a script without spaces (Chinese)."""
    least: int = 1
    """Different runs of one text of a set that a document must have to go; all of them, where the
    text has fewer."""
    share: float = 0.0
    """And the least share of the runs of that text."""

    def __post_init__(self) -> None:
        names = [s.name for s in self.sets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sets: two are named {name!r}; give each a name of its own")
        thresholds.at_least(self, 1, "words", "characters", "least")
        thresholds.shares(self, "share")

    def enough(self, found: int, of: int) -> bool:
        """Whether so many of the runs of a text are too many."""
        return found >= min(self.least, of) and found >= self.share * of
