"""Best-fit packing: chunks that hold whole documents, as many as fit, and padding.

Best-fit decreasing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"): the longest
piece first, each into the chunk with the least room that still holds it. Only a document longer
than a chunk is cut; each of its pieces starts with a BOS of its own, so that no chunk needs
another.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data_tools.pack.layout import Layout


def best_fit(tokens_N: np.ndarray, chunk_tokens: int, place: Callable[[int, int], int]) -> Layout:
    """Lays out documents of int64[N] tokens.

    A chunk whose longest piece is of `document` and comes after `skip` of its tokens has its place
    among the others by `place(document, skip)`, which should say nothing about size: as they are
    filled, the fullest chunks come first.
    """
    pieces = cut(tokens_N, chunk_tokens - 1)
    # Equal sizes stay in the order of the documents: the same documents give the same chunks.
    pieces = pieces.take(np.argsort(-pieces.tokens_P, kind="stable"))
    chunk_P = fit(pieces.tokens_P + 1, chunk_tokens)

    longest_C = pieces.take(np.unique(chunk_P, return_index=True)[1])
    begins = zip(longest_C.document_P.tolist(), longest_C.skip_P.tolist(), strict=True)
    places_C = np.array([place(document, skip) for document, skip in begins], np.uint64)
    rank_C = np.empty(len(places_C), np.int64)
    rank_C[np.argsort(places_C, kind="stable")] = np.arange(len(places_C))

    chunk_P = rank_C[chunk_P]
    order = np.argsort(chunk_P, kind="stable")
    chunk_P, pieces = chunk_P[order], pieces.take(order)
    before_P = np.cumsum(pieces.tokens_P + 1) - (pieces.tokens_P + 1)
    before_C = before_P[np.searchsorted(chunk_P, np.arange(len(rank_C)))]
    return Layout(
        document_P=pieces.document_P,
        skip_P=pieces.skip_P,
        tokens_P=pieces.tokens_P,
        start_P=chunk_P * chunk_tokens + before_P - before_C[chunk_P],
        chunks=len(rank_C),
        closed=True,
        truncated=int(np.count_nonzero(tokens_N > chunk_tokens - 1)),
    )


class Pieces(NamedTuple):
    """P pieces of documents."""

    document_P: np.ndarray
    """int64[P]: number of the document."""
    skip_P: np.ndarray
    """int64[P]: tokens of the document before the piece."""
    tokens_P: np.ndarray
    """int64[P]"""

    def take(self, indices: np.ndarray) -> "Pieces":
        """These of the pieces, in this order."""
        return Pieces(*(column[indices] for column in self))


def cut(tokens_N: np.ndarray, most: int) -> Pieces:
    """Cuts documents of int64[N] tokens into pieces of `most` and a rest."""
    count_N = np.maximum(-(-tokens_N // most), 1)
    document_P = np.repeat(np.arange(len(tokens_N)), count_N)
    before_N = np.cumsum(count_N) - count_N
    skip_P = (np.arange(len(document_P)) - before_N[document_P]) * most
    return Pieces(document_P, skip_P, np.minimum(tokens_N[document_P] - skip_P, most))


def fit(spans_P: np.ndarray, capacity: int) -> np.ndarray:
    """The chunk that each span goes to, int64[P]; spans are at most `capacity`, longest first.

    All spans of one size are placed at once: a chunk that took one of them has the least room for
    the next as long as it holds one more. The chunks that have some room are found by a bit for
    each amount of room.
    """
    with_room: dict[int, list[int]] = defaultdict(list)
    rooms = chunks = 0
    found = [np.zeros(0, np.int64)]
    sizes, counts = np.unique(spans_P, return_counts=True)
    for size, count in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while count:
            wide = rooms >> size
            room = size + (wide & -wide).bit_length() - 1 if wide else capacity
            each = room // size
            wanted = -(-count // each)
            if not wide:
                with_room[capacity] = list(range(chunks, chunks + wanted))
                chunks += wanted
            here = with_room[room]
            taken = here[-wanted:]
            del here[-wanted:]
            if not here:
                rooms &= ~(1 << room)
            placed = min(count, len(taken) * each)
            found.append(np.repeat(taken, each)[:placed])
            in_last = placed - (len(taken) - 1) * each
            for some, spans in ((taken[:-1], each), (taken[-1:], in_last)):
                left = room - spans * size
                if some and left:
                    with_room[left] += some
                    rooms |= 1 << left
            count -= placed
    return np.concatenate(found)
