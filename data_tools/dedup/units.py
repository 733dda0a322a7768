"""Texts as sequences of hashed units, many texts at a time: what shingles and n-grams consist of.

A unit of prose is one character of a script that is written without spaces, or a word of any other
script. Case, width, punctuation and white space do not count. A unit of code is a word, a number
or a single sign; case counts, white space does not.

C: code points of all texts, U: units of all texts, T: texts.
"""

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

VERSION = f"1 unicode {unicodedata.unidata_version}"
"""Of the units; part of the version of every stage that hashes them."""

PIECE = 1 << 17
"""Characters worked on at a time, so that the arrays stay in the cache. A longer text is cut after
every `PIECE` characters: a word there counts as two."""

_WORD, _SINGLE = 1 << 24, 2 << 24
"""Kind of a character, above the 21 bits of its code point; a separator is all zero."""

_WITHOUT_SPACES = (
    (0x0E00, 0x1000),  # Thai, Lao, Tibetan
    (0x1000, 0x10A0),  # Myanmar
    (0x1780, 0x1800),  # Khmer
    (0x2E80, 0xA4D0),  # Han, kana, bopomofo, Yi
    (0xF900, 0xFB00),  # Han
    (0x20000, 0x40000),  # Han
)
"""Blocks, first and past the last, of scripts that are written without spaces."""

_CHARACTERS, _UNITS = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
"""Bases of the polynomial hashes modulo 2^64 of words and of runs of units: odd, so that they have
inverses, and any part of a running sum can be shifted to position 0."""


@dataclass(frozen=True)
class Units:
    """The units of some texts."""

    hash_U: np.ndarray
    """uint64, well mixed: equal for equal units."""
    single_U: np.ndarray
    """bool: a character or a sign by itself, not a word."""
    bounds: np.ndarray
    """int64[T + 1]: the units of text t are bounds[t] to bounds[t + 1]."""


def units(texts: Sequence[str], code: bool) -> Units:
    """The units of texts; needs 9 bytes a unit, and 4 MB."""
    counts = np.zeros(len(texts), np.int64)
    found: list[tuple[np.ndarray, np.ndarray]] = [(np.empty(0, np.uint64), np.empty(0, bool))]
    pieces: list[str] = []
    owners: list[int] = []

    def flush() -> None:
        hash_U, single_U, count = _piece_units(pieces, code)
        np.add.at(counts, owners, count)
        found.append((hash_U, single_U))
        pieces.clear()
        owners.clear()

    room = PIECE
    for t, text in enumerate(texts):
        for at in range(0, len(text), PIECE):
            piece = text[at : at + PIECE]
            if len(piece) > room:
                flush()
                room = PIECE
            pieces.append(piece)
            owners.append(t)
            room -= len(piece)
    if pieces:
        flush()
    hash_U, single_U = (np.concatenate(column) for column in zip(*found, strict=True))
    return Units(hash_U, single_U, np.concatenate([[0], np.cumsum(counts)]))


def _piece_units(pieces: Sequence[str], code: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hash_U, single_U, units of each piece); a piece has at least one character."""
    lengths = [len(piece) for piece in pieces]
    code_C = np.frombuffer("".join(pieces).encode("utf-32-le"), "<u4")
    character_C = _characters(code)[code_C]
    begins_C = character_C != 0
    word_C = (character_C & _WORD) != 0
    first = np.cumsum([0, *lengths[:-1]])
    within_C = word_C[1:] & word_C[:-1]
    within_C[first[1:] - 1] = False  # a word does not reach into the next piece
    begins_C[1:] &= ~within_C
    start_U = np.flatnonzero(begins_C)
    count = np.diff(np.searchsorted(start_U, np.append(first, len(code_C))))
    if not len(start_U):
        return np.empty(0, np.uint64), np.empty(0, bool), count
    powers, inverses = _powers(_CHARACTERS, len(code_C))
    sum_U = np.add.reduceat(character_C * powers[: len(code_C)], start_U)
    hash_U = mix(sum_U * inverses[start_U])
    return hash_U, ~word_C[start_U], count


def grams(units: Units, words: int, singles: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint64[U] hash of the run of units that begins at each, bool[U] it ends within its text).

    A run that begins with a word has `words` units, another one `singles`.
    """
    hash_U = _runs(units.hash_U, words)
    length_U: int | np.ndarray = words
    if words != singles:
        hash_U = np.where(units.single_U, _runs(units.hash_U, singles), hash_U)
        length_U = np.where(units.single_U, singles, words)
    end_U = np.repeat(units.bounds[1:], np.diff(units.bounds))
    return hash_U, np.arange(len(end_U)) + length_U <= end_U


def _runs(hash_U: np.ndarray, length: int) -> np.ndarray:
    """uint64[U]: hash of each run of `length` units, over the ends of texts; 0 past the last."""
    result_U = np.zeros(len(hash_U), np.uint64)
    for first in range(0, len(hash_U) - length + 1, PIECE):
        part_U = hash_U[first : first + PIECE + length - 1]
        powers, inverses = _powers(_UNITS, len(part_U))
        sum_U = np.zeros(len(part_U) + 1, np.uint64)
        np.cumsum(part_U * powers[: len(part_U)], out=sum_U[1:])
        count = len(part_U) - length + 1
        run_U = mix((sum_U[length:] - sum_U[:count]) * inverses[:count])
        result_U[first : first + count] = run_U
    return result_U


def spell(text: str, code: bool) -> tuple[list[str], list[bool]]:
    """(Units of one text as strings, which are single): slow, and exact where `units` hashes."""
    result: list[str] = []
    single: list[bool] = []
    table = _characters(code)
    open_word = False
    for i, character in enumerate(text):
        value = int(table[ord(character)])
        if i % PIECE == 0:
            open_word = False
        if value and open_word and value & _WORD:
            result[-1] += chr(value & 0xFFFFFF)
        elif value:
            result.append(chr(value & 0xFFFFFF))
            single.append(bool(value & _SINGLE))
        open_word = bool(value & _WORD)
    return result, single


def mix(value: np.ndarray) -> np.ndarray:
    """MurmurHash3's 64-bit finalizer, a bijection: nearby values become unrelated ones."""
    value = value ^ (value >> np.uint64(33))
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    value ^= value >> np.uint64(33)
    return value


def _powers(base: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `count` powers of a base modulo 2^64, and of its inverse."""
    return _power_table(base, max(PIECE, 1 << (count - 1).bit_length()))


@functools.lru_cache(4)
def _power_table(base: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    def table(base: int) -> np.ndarray:
        factors = np.full(count, base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors)

    return table(base), table(pow(base, -1, 1 << 64))


@functools.cache
def _characters(code: bool) -> np.ndarray:
    """uint32 for each code point: the code point that it counts as, and its kind."""
    table = np.zeros(0x110000, np.uint32)
    for point in itertools.chain(range(0x4E00), range(0xA000, 0x20000)):
        character = chr(point)
        category = unicodedata.category(character)[0]
        if category in "LNM" or (code and character == "_"):
            folded = character if code else unicodedata.normalize("NFKC", character).lower()
            table[point] = _WORD | (ord(folded) if len(folded) == 1 else point)
        elif code and category in "PS":
            table[point] = _SINGLE | point
    for block in (slice(0x4E00, 0xA000), slice(0x20000, 0x40000)):  # nothing but Han characters
        table[block] = _SINGLE | np.arange(block.start, block.stop, dtype=np.uint32)
    point_C = table & np.uint32(_WORD - 1)
    for first, end in _WITHOUT_SPACES:
        alone_C = (point_C >= first) & (point_C < end)
        table[alone_C] = _SINGLE | point_C[alone_C]
    return table
