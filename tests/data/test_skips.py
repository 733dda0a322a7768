"""Skipped windows: every answer against a plain set of positions."""

import itertools
import json
import random

import numpy as np
import pytest

from jaxlm.data.skips import NO_SKIPS, Skips, SkipsError, check_past, load

END = 120
"""Windows of the property tests lie before it."""


def random_skips(rng: random.Random) -> tuple[Skips, list[int]]:
    """Windows, which touch now and then, and the first positions outside them."""
    edges = sorted(rng.sample(range(END), 2 * rng.randrange(6)))
    windows = [list(w) for w in zip(edges[::2], edges[1::2], strict=True)]
    for one, other in itertools.pairwise(windows):
        if rng.random() < 0.3:
            one[1] = other[0]
    skipped = {p for start, stop in windows for p in range(start, stop)}
    return Skips(windows), [p for p in range(3 * END) if p not in skipped]


def test_against_a_set():
    rng = random.Random(0)
    for _ in range(300):
        skips, left = random_skips(rng)
        everything = np.arange(2 * END)
        ranks = [sum(q < p for q in left) for p in everything]
        assert skips.rank(everything).tolist() == ranks
        assert skips.at(np.arange(len(left))).tolist() == left
        assert skips.holds(everything).tolist() == [p not in left for p in everything]
        first, count = rng.randrange(END + 9), rng.randrange(30)
        expected = [p for p in left if p >= first][:count]
        found = skips.positions(first, count)
        assert found.tolist() == expected and found.dtype == np.int64
        assert skips.next(first) == next(p for p in left if p >= first)
        stop = first + rng.randrange(60)
        assert skips.count(first, stop) == sum(first <= p < stop for p in left)


def test_batches_join_and_leave_nothing_out():
    rng = random.Random(1)
    for _ in range(100):
        skips, left = random_skips(rng)
        position, seen = 0, []
        while len(seen) < END:
            size = rng.randrange(1, 9)
            batch = skips.positions(position, size)
            seen += batch.tolist()
            position = seen[-1] + 1
        assert seen == left[: len(seen)]


def test_none_skips_nothing():
    assert NO_SKIPS.windows == ()
    assert NO_SKIPS.positions(7, 3).tolist() == [7, 8, 9]
    assert (NO_SKIPS.next(5), NO_SKIPS.count(5, 9)) == (5, 4)
    assert not NO_SKIPS.holds(np.arange(9)).any()


def test_positions_beyond_32_bits():
    start = 2**61
    skips = Skips([[8, 16], [start, start + 5]])
    assert skips.positions(start - 2, 4).tolist() == [start - 2, start - 1, start + 5, start + 6]
    assert skips.count(0, start + 5) == start - 8


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ([[5, 5]], r"window \[5, 5\): must start at 0 or later, end after its start"),
        ([[-1, 5]], r"window \[-1, 5\): must start at 0 or later"),
        ([[0, 2**62 + 1]], r"and at 2\*\*62 at most"),
        ([[0, 8], [7, 9]], r"\[7, 9\) starts before row 8, where the one before it ends; put the"),
        ([[8, 9], [0, 2]], r"\[0, 2\) starts before row 9"),
    ],
)
def test_windows_that_are_wrong(tmp_path, windows, message):
    with pytest.raises(SkipsError, match=message):
        Skips(windows)
    (tmp_path / "skips.json").write_text(json.dumps(windows))
    with pytest.raises(SkipsError, match=rf"^{tmp_path}/skips.json: .*{message}"):
        load(tmp_path)


@pytest.mark.parametrize("data", ["{}", "[1, 2]", "[[1, 2, 3]]", "[[1.0, 2]]", "[[true, 2]]"])
def test_what_is_no_list_of_windows(tmp_path, data):
    (tmp_path / "skips.json").write_text(data)
    with pytest.raises(
        SkipsError, match=r"must be a list of windows \[start, stop\], as \[\[800, 840\]\]"
    ):
        load(tmp_path)


def test_a_file_that_is_torn(tmp_path):
    (tmp_path / "skips.json").write_text("[[1, ")
    with pytest.raises(SkipsError, match=r"skips.json: cannot be read .*; restore it: without it"):
        load(tmp_path)


def test_load(tmp_path):
    assert load(tmp_path).windows == ()
    assert load(tmp_path / "not there").windows == ()
    (tmp_path / "skips.json").write_text("[[80, 112], [112, 120]]")
    assert load(tmp_path).windows == ((80, 112), (112, 120))


def test_the_past_may_not_change():
    """Windows at or after a checkpoint's position may come and go; those before it may not."""
    saved = Skips([[10, 20], [50, 60]])
    for now in ([[10, 20]], [[10, 15], [15, 20], [40, 70]], [[10, 20], [60, 61]]):
        check_past(saved, Skips(now), 40)
    for now in ([], [[10, 21]], [[5, 6], [10, 20]], [[10, 20], [39, 41]]):
        with pytest.raises(SkipsError) as e:
            check_past(saved, Skips(now), 40)
    assert str(e.value).startswith(
        "skips.json: before the checkpoint's row 40 it skips [10, 20), [39, 40), but the "
        "checkpoint was trained with [10, 20) skipped. Rows that are done cannot change"
    )
    with pytest.raises(SkipsError, match=r"it skips no rows, but"):
        check_past(saved, NO_SKIPS, 40)
