"""Texts as sets of shingles: 64-bit hashes of every run of a few units.

Two different shingles share a hash with probability 2^-64: for a pair of texts with a million
shingles each, some hash is shared by chance once in twenty million such pairs. With 32 bits each
such pair would have some 230 false matches.

T: texts, S: shingles of all of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from data_tools.dedup.config import ShingleConfig
from data_tools.dedup.units import grams, units

BATCH = 1 << 19
"""Characters of texts that are worked on together."""


def takes_part(type: str, config: ShingleConfig) -> bool:
    """Whether documents of a type are compared by similarity."""
    return not config.types or type in config.types


def batches(lengths: Sequence[int]) -> Iterator[slice]:
    """Cuts texts of these lengths into runs of about `BATCH` characters."""
    first = room = 0
    for i, length in enumerate(lengths):
        if i > first and length > room:
            yield slice(first, i)
            first = i
        room = BATCH if i == first else room
        room -= length
    if first < len(lengths):
        yield slice(first, len(lengths))


def shingles(
    texts: Sequence[str], code: bool, config: ShingleConfig
) -> tuple[np.ndarray, np.ndarray]:
    """(uint64[S] with repetitions in the order of the text, int64[T + 1] bounds of each text).

    A text with fewer than `config.shortest` of them has none.
    """
    found = units(texts, code)
    lengths = (config.tokens,) * 2 if code else (config.words, config.characters)
    hash_U, inside_U = grams(found, *lengths)
    running = np.concatenate([[0], np.cumsum(inside_U)])
    count_T = np.diff(running[found.bounds])
    enough_T = count_T >= config.shortest
    if not enough_T.all():
        inside_U &= np.repeat(enough_T, np.diff(found.bounds))
        count_T = np.where(enough_T, count_T, 0)
    return hash_U[inside_U], np.concatenate([[0], np.cumsum(count_T)])
