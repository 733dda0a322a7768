"""Near copies of real documents at a known Jaccard similarity, computed the slow and plain way.

Nothing here is shared with `data_tools.dedup`, so that each can be held against the other. Units
of prose are single characters of scripts without spaces and words of the others, without regard to
case, width and punctuation; units of code are words and single signs. A shingle is 5 units in a
row.
"""

import random
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

UNITS = 5
"""Units of a shingle."""
ALIKE = 0.8
"""Texts of this similarity are near duplicates, however short."""
SINGLE = r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\U00020000-\U0003ffff]"
PROSE = re.compile(rf"{SINGLE}|(?:(?!{SINGLE})[^\W_])+")
CODE = re.compile(r"\w+|[^\w\s]")


def units(text: str, code: bool) -> list[str]:
    """The units of a text, in order."""
    if code:
        return CODE.findall(text)
    return PROSE.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str, code: bool) -> set[tuple[str, ...]]:
    """All runs of `UNITS` units; of a shorter text, all of it as one."""
    found = units(text, code)
    return {tuple(found[i : i + UNITS]) for i in range(max(1, len(found) - UNITS + 1))}


def jaccard(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> float:
    """Size of what they share over the size of what either has."""
    return len(one & other) / len(one | other)


def distinct(texts: Sequence[str]) -> list[bool]:
    """Which texts of prose are no near duplicates (`ALIKE`) of a distinct one before them."""
    holders: dict[tuple[str, ...], list[int]] = {}
    sets: list[set[tuple[str, ...]]] = []
    found = []
    for text in texts:
        own = shingles(text, code=False)
        others = {n for s in own for n in holders.get(s, ())}
        found.append(all(jaccard(own, sets[n]) < ALIKE for n in others))
        if found[-1]:
            for shingle in own:
                holders.setdefault(shingle, []).append(len(sets))
            sets.append(own)
    return found


class Copy(NamedTuple):
    """An edited text and how similar it is."""

    text: str
    jaccard: float


def near_copy(text: str, target: float, words: Sequence[str], code: bool, seed: str) -> Copy:
    """The text with units replaced, left out or put in, as many as bring it closest to `target`.

    `words` are what is put in: real ones of the same kind of text.
    """
    rng = random.Random(seed)
    spans = [m.span() for m in (CODE if code else PROSE).finditer(text)]
    edits = {
        i: (rng.random(), rng.choice(words)) for i in rng.sample(range(len(spans)), len(spans))
    }
    order = list(edits)
    original = shingles(text, code)

    def tried(count: int) -> Copy:
        edited = _edited(text, spans, {i: edits[i] for i in order[:count]})
        return Copy(edited, jaccard(original, shingles(edited, code)))

    low, high = 1, len(order)  # more edits, less similarity
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tried(middle).jaccard > target else (low, middle)
    return min((tried(low), tried(high)), key=lambda copy: abs(copy.jaccard - target))


def _edited(
    text: str, spans: Sequence[tuple[int, int]], edits: dict[int, tuple[float, str]]
) -> str:
    """Each edit replaces (most), removes, or follows the unit of its number."""
    pieces, end = [], 0
    for number in sorted(edits):
        choice, word = edits[number]
        start, stop = spans[number]
        pieces.append(text[end:start])
        unit = text[start:stop]
        # what is put beside a word must not become a part of it
        gap = " " if word.isascii() and word.isalnum() else ""
        if choice < 0.6:
            pieces.append(word)
        elif choice < 0.8:
            pieces.append(f"{unit}{gap}{word}{gap}")
        end = stop
    return "".join([*pieces, text[end:]])
