"""Shares spread over blocks: whole at last, near to exact at any time, and invertible."""

import numpy as np
import pytest

from jaxlm.data.spread import PERIOD, UNEVEN, Spread

LIMIT = 2**62 // 100 + 2


def spread(*shares: float, slots: int = 100) -> tuple[Spread, np.ndarray]:
    """100 slots a block in these shares; and the exact slots in a block."""
    counts = [int(share / sum(shares) * slots * PERIOD) for share in shares]
    counts[0] += slots * PERIOD - sum(counts)
    return Spread(counts, LIMIT), np.array(counts) / PERIOD


SHARES = [(1, 1, 1), (0.9, 1e-7, 0.1), (3, 0, 5), (1,), (1e-9, 1e-9, 1), tuple(range(1, 50))]


@pytest.mark.parametrize("shares", SHARES)
def test_a_block_has_each_share_rounded_up_or_down(shares):
    made, exact = spread(*shares)
    blocks = np.arange(3_000)
    ends = made.ends(blocks)
    slots = np.diff(ends, axis=1, prepend=0)
    assert (ends[:, -1] == 100).all()
    assert (slots >= np.floor(exact)).all() and (slots <= np.ceil(exact)).all()
    assert (made.before(blocks) == np.cumsum(slots, axis=0) - slots).all()


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("start", [0, 2**31, PERIOD - 500, 2**40, LIMIT - 1_000])
def test_the_sums_are_near_to_exact_wherever_one_counts(shares, start):
    made, exact = spread(*shares)
    blocks = np.arange(start, start + 1_000)
    before = made.before(blocks)
    assert (before.sum(axis=1) == 100 * blocks).all()
    since = before - before[0]
    assert abs(since - exact * (blocks - start)[:, None]).max() < 12
    periods, phase = np.divmod(blocks, PERIOD)
    off = before - periods[:, None] * (exact * PERIOD).astype(np.int64) - exact * phase[:, None]
    assert abs(off).max() < UNEVEN


def test_a_period_has_exactly_the_shares():
    made, exact = spread(0.3, 1e-9, 2)
    assert (made.before(np.array([PERIOD]))[0] == exact * PERIOD).all()
    assert (made.before(np.array([7 * PERIOD]))[0] == exact * PERIOD * 7).all()


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("start", [0, 2**31, 2**40, LIMIT - 2_000])
def test_the_block_of_a_slot(shares, start):
    made, _ = spread(*shares)
    blocks = np.arange(start, start + 500)
    slots = np.diff(made.ends(blocks), axis=1, prepend=0)
    before = made.before(blocks)
    for source in range(len(shares)):
        has = slots[:, source] > 0
        for slot in (before[has, source], before[has, source] + slots[has, source] - 1):
            found = made.block(np.full(len(slot), source), slot)
            assert (found == blocks[has]).all()
