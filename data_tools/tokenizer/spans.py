"""Where each token lies in the text that it was made from, in characters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlm.data.tokenizer import Spelling


class Spans(NamedTuple):
    """Tokens of a text, in order; T of them. A character whose bytes are spread over tokens belongs
    to each of these."""

    begin_T: np.ndarray
    """int64: the first character that the token has bytes of."""
    end_T: np.ndarray
    """int64: behind the last character that it has bytes of."""
    known_T: np.ndarray
    """bool: false for a token that stands for what the vocabulary lacks."""


def spelled(text: str, ids: Sequence[int], spelling: Spelling) -> Spans | None:
    """Where the pieces of `ids` lie in a text that they spell; None if they do not."""
    data = np.frombuffer(text.encode(), np.uint8)
    ids_T = np.asarray(ids, np.int64)
    starts = spelling.starts
    length_T = starts[ids_T + 1] - starts[ids_T]
    end_T = np.cumsum(length_T)
    if (end_T[-1] if len(end_T) else 0) != len(data):
        return None
    character = np.cumsum((data & 0xC0) != 0x80) - 1  # of each byte
    full_T = length_T > 0
    first_T, last_T = (end_T - length_T)[full_T], end_T[full_T] - 1
    known_T = np.ones(len(first_T), bool)
    return Spans(character[first_T], character[last_T] + 1, known_T)


def covered(text: str, spans: Spans) -> int:
    """Characters that lie whole in one known token."""
    starts = np.zeros(len(text) + 1, np.int64)
    known_T = spans.known_T
    np.add.at(starts, spans.begin_T[known_T], 1)
    np.add.at(starts, spans.end_T[known_T], -1)
    return int(np.count_nonzero(np.cumsum(starts)[:-1] == 1))


def overlapping(spans: Spans, begin_U: np.ndarray, end_U: np.ndarray) -> np.ndarray:
    """int64[U]: tokens that have a character of each stretch [begin, end) of the text."""
    first_U = np.searchsorted(spans.end_T, begin_U, "right")
    return np.searchsorted(spans.begin_T, end_U, "left") - first_U


def within(spans: Spans, begin_U: np.ndarray, end_U: np.ndarray) -> np.ndarray:
    """int64[U]: tokens that lie wholly in each stretch [begin, end) of the text."""
    first_U = np.searchsorted(spans.begin_T, begin_U, "left")
    return np.maximum(np.searchsorted(spans.end_T, end_U, "right") - first_U, 0)
