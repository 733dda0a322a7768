"""Shares spread over blocks: each block has a source's share of it, rounded up or down.

The sources' shares of a block lie end to end. In block b each edge between two of them is rounded
down after a fraction that is b's own has been added. The fractions are the numbers b with their
bits reversed (van der Corput 1935): any run of blocks has them spread evenly, so that its counts
are within a few rows of the exact shares, however small these are; and `PERIOD` blocks have each
fraction once, and exactly the shares. All by arithmetic on integers: no tables, whatever the block.
"""

from collections.abc import Sequence

import numpy as np

BITS = 32
PERIOD = 2**BITS
"""Blocks in which the shares are exact."""

UNEVEN = 64
"""Slots by which a source's in n blocks, n below 2**62, are no further from its share of them: two
edges, each off by log2(n) / 3 + 1 at most (Béjian and Faure 1977)."""


class Spread:
    """Slots of S sources in the blocks 0, 1, 2, ...; blocks are int64 arrays."""

    def __init__(self, counts: Sequence[int], limit: int):
        """`counts`: slots of each source in a period, at most 2**52. Blocks are below `limit`."""
        self._counts_S = np.array(counts, np.int64)
        self._edges_S, self._limit = np.cumsum(self._counts_S), limit

    def ends(self, block_N: np.ndarray) -> np.ndarray:
        """int64[N, S]: where each source's slots in a block end; the next one's begin there."""
        reversed_N, _ = _reversed(block_N % PERIOD, np.zeros(1, np.int64))
        return (self._edges_S + reversed_N[:, None]) // PERIOD

    def before(self, block_N: np.ndarray) -> np.ndarray:
        """int64[N, S]: slots of each source in the blocks before."""
        return np.diff(_slots_before(self._edges_S, block_N[:, None]), axis=1, prepend=0)

    def block(self, source_N: np.ndarray, slot_N: np.ndarray) -> np.ndarray:
        """int64[N]: the block with slot 0, 1, 2, ... of a source, if it is below limit - 1."""
        count_N = self._counts_S[source_N]
        edge_N = self._edges_S[source_N]
        share_N = np.maximum(count_N, 1) / PERIOD
        about_N, near_N = slot_N / share_N, UNEVEN / share_N + 1
        near_N += about_N * 1e-12  # of the division
        low_N = np.clip(about_N - near_N, 0, self._limit - 1).astype(np.int64)
        high_N = np.clip(about_N + near_N, 1, self._limit).astype(np.int64)
        while (high_N - low_N > 1).any():
            middle_N = (low_N + high_N) // 2
            before_N = _slots_before(edge_N, middle_N) - _slots_before(edge_N - count_N, middle_N)
            low_N = np.where(before_N <= slot_N, middle_N, low_N)
            high_N = np.where(before_N <= slot_N, high_N, middle_N)
        return low_N


def _slots_before(edge: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Slots before an edge (its slots in a period), in all blocks before this one."""
    periods, phase = np.divmod(block, PERIOD)
    whole, fraction = np.divmod(edge, PERIOD)
    _, rounded_down = _reversed(phase, PERIOD - fraction)
    return periods * edge + phase * (whole + 1) - rounded_down


def _reversed(n: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`n` (below `PERIOD`) with its bits reversed; how many of 0..n-1 so become less than `below`.

    The numbers below n are runs of 2**j, one for each bit j of n. In a run the upper bits are fixed
    and the j lower ones take all values; reversed, it has a number in every stretch of
    2**(BITS - j), at one place in all of them.
    """
    place, count = np.zeros_like(n), np.zeros(np.broadcast_shapes(n.shape, below.shape), np.int64)
    for j in reversed(range(BITS)):
        bit = n >> j & 1
        count += bit * np.clip(-((place - below) >> (BITS - j)), 0, 1 << j)
        place |= bit << (BITS - 1 - j)
    return place, count
