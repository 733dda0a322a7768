"""How many tokens an identifier, a number or the start of a line takes, where it stands."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data_tools.tokenizer.spans import Spans, overlapping, within

IDENTIFIER = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
"""Words of comments and strings too: of one hump, they are counted as plain."""
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[0-9]+(?:\.[0-9]+)?")
LINE_START = re.compile(r"\n[ \t]+(?=[^ \t\n])")
"""A newline and the indentation behind it."""
HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")

IDENTIFIERS = ("snake_case", "camelCase", "dunder", "plain")
"""Kinds of identifiers. A plain one is a single word: `value`, `None`, `x1`, and words of prose."""
KINDS = (*IDENTIFIERS, "number", "line start")
SHORT = 2
"""Tokens of an identifier that is not shattered, at most."""


@dataclass
class Fertility:
    """Stretches of one kind: how many, with how many tokens, and how many with `SHORT` at most."""

    units: int = 0
    tokens: int = 0
    short: int = 0

    def add(self, count_U: np.ndarray) -> None:
        """The tokens of each of these stretches."""
        self.units += len(count_U)
        self.tokens += int(count_U.sum())
        self.short += int(np.count_nonzero(count_U <= SHORT))

    def merge(self, other: "Fertility") -> None:
        """The stretches of another text too."""
        self.units += other.units
        self.tokens += other.tokens
        self.short += other.short


def kind_of(identifier: str) -> str:
    """One of `IDENTIFIERS`."""
    bare = identifier.strip("_")
    if identifier.startswith("__") and identifier.endswith("__") and bare:
        return "dunder"
    if "_" in identifier:
        return "snake_case"
    return "camelCase" if HUMP.search(bare) else "plain"


def measure(text: str, spans: Spans, sums: dict[str, Fertility], code: bool) -> None:
    """Adds a text's numbers and, of code, its identifiers and line starts to `sums`, by kind.

    Of identifiers and numbers every token counts that has a part of them; of a line's start those
    that lie in it, since a token that takes the next word with it costs nothing.
    """
    _sum(sums, "number", overlapping(spans, *_bounds(NUMBER.finditer(text))))
    if not code:
        return
    _sum(sums, "line start", within(spans, *_bounds(LINE_START.finditer(text))))
    found = list(IDENTIFIER.finditer(text))
    count_U = overlapping(spans, *_bounds(found))
    kind_U = np.array([kind_of(m[0]) for m in found])
    for kind in IDENTIFIERS:
        _sum(sums, kind, count_U[kind_U == kind])


def _bounds(found: Iterable[re.Match[str]]) -> tuple[np.ndarray, np.ndarray]:
    bounds_U2 = np.array([m.span() for m in found], np.int64).reshape(-1, 2)
    return bounds_U2[:, 0], bounds_U2[:, 1]


def _sum(sums: dict[str, Fertility], kind: str, count_U: np.ndarray) -> None:
    sums.setdefault(kind, Fertility()).add(count_U)
