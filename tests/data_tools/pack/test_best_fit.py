"""Best fit: what a plain search for the tightest chunk finds, and no document cut that fits."""

import random
import time

import numpy as np
import pytest

from data_tools.pack.best_fit import best_fit, cut, fit


def slow_fit(spans: list[int], capacity: int) -> list[int]:
    """Best-fit decreasing as it is defined: room left in each chunk."""
    rooms: list[int] = []
    for span in sorted(spans, reverse=True):
        wide = [i for i, room in enumerate(rooms) if room >= span]
        if wide:
            rooms[min(wide, key=lambda i: rooms[i])] -= span
        else:
            rooms.append(capacity - span)
    return sorted(rooms)


@pytest.mark.parametrize("seed", range(60))
def test_fit_is_best_fit_decreasing(seed):
    rng = random.Random(seed)
    capacity = rng.choice([2, 3, 10, 64, 200])
    most = rng.randint(1, capacity)
    spans = [rng.randint(1, most) for _ in range(rng.randint(1, 300))]
    found = fit(np.sort(np.array(spans))[::-1], capacity)
    used = np.bincount(found, np.sort(np.array(spans))[::-1])
    assert sorted((capacity - used).astype(int).tolist()) == slow_fit(spans, capacity)


def test_fit_of_millions_takes_seconds():
    spans = np.sort(np.random.default_rng(0).geometric(0.002, 1_000_000).clip(1, 2048))[::-1]
    start = time.perf_counter()
    found = fit(spans, 2048)
    assert time.perf_counter() - start < 20
    used = np.bincount(found, spans)
    assert used.max() <= 2048 and used.sum() / (2048 * len(used)) > 0.999


def test_cut_covers_every_token_once():
    pieces = cut(np.array([0, 1, 15, 16, 30, 31, 100]), 15)
    assert pieces.tokens_P.tolist() == [0, 1, 15, 15, 1, 15, 15, 15, 15, 1, *[15] * 6, 10]
    assert pieces.document_P.tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, *[6] * 7]
    assert pieces.skip_P.tolist() == [0, 0, 0, 0, 15, 0, 15, 0, 15, 30, *range(0, 105, 15)]


@pytest.mark.parametrize("seed", range(20))
def test_chunks_hold_whole_pieces_in_the_order_asked_for(seed):
    rng = random.Random(seed)
    size = rng.choice([4, 16, 50])
    tokens = np.array([rng.randint(0, 3 * size) for _ in range(rng.randint(1, 120))])
    places: dict[int, int] = {}

    def place(document: int, skip: int) -> int:
        return places.setdefault(document * 1000 + skip, rng.getrandbits(64))

    layout = best_fit(tokens, size, place)
    first, last = layout.start_P // size, (layout.start_P + layout.tokens_P) // size
    assert (first == last).all()  # no piece leaves its chunk
    assert (np.diff(layout.start_P) > layout.tokens_P[:-1]).all()  # nor touches another
    assert (layout.start_P[np.searchsorted(first, range(layout.chunks))] % size == 0).all()
    assert layout.truncated == int((tokens >= size).sum())
    whole = {d: t for d, t in enumerate(tokens.tolist()) if t < size}
    pieces = zip(layout.document_P.tolist(), layout.skip_P.tolist(), strict=True)
    found = sorted(zip(pieces, layout.tokens_P.tolist(), strict=True))
    assert [(d, s, t) for (d, s), t in found if d in whole] == [(d, 0, t) for d, t in whole.items()]
    asked = [places[d * 1000 + s] for d, s in _longest(layout, size)]
    assert asked == sorted(asked)


def _longest(layout, size):
    for chunk in range(layout.chunks):
        at = np.flatnonzero(layout.start_P // size == chunk)
        best = at[np.argmax(layout.tokens_P[at])]
        yield int(layout.document_P[best]), int(layout.skip_P[best])
