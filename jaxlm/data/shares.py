"""Shares of tokens within limits: who gives how much when some have not enough.

A pool is the sources of one type. Its members share what it gives by their pull, none beyond its
cap. When all are at their caps the pool is short: its weight is scaled down in all stages by one
factor, so that it gives just what it has, and the other pools of each stage give more, in their own
proportions.

Stages are lengths in rows, and a row of one member holds more tokens than one of another. Nothing
here but sums, products and quotients of Python's floats: every machine comes to the same shares.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

ROUNDING = 1e-9
"""A share of a limit that is no excess over it."""

PRECISION = 1e-12
"""Relative error of the rows that a stage has."""

WEIGHTS = "0, or from 0.000001 to 1,000,000"
"""What a weight may be: their sums, products and quotients stay ordinary numbers."""

SWEEPS = 1000
"""Through the stages, at most; the first is exact for one stage, or where nothing runs short."""


def is_weight(number: float) -> bool:
    """Whether it is one of `WEIGHTS`."""
    return number == 0 or 1e-6 <= number <= 1e6


class Unfilled(Exception):
    """All pools that some stages draw on have not rows enough for them."""

    def __init__(self, stage: int, pools: Sequence[str]):
        """`stage` is the first of them."""
        super().__init__(stage, pools)
        self.stage, self.pools = stage, pools


class Member(NamedTuple):
    """A source as its pool sees it."""

    name: str
    pull: float
    """How much of the pool's tokens it gives, relative to the others; above 0."""
    cap: float
    """Tokens that it can give."""
    per_row: float
    """Tokens in a row of it."""


class Pool:
    """Sources that stand in for each other."""

    def __init__(self, members: Sequence[Member]):
        self.members = sorted(members, key=lambda m: (m.cap / m.pull, m.name))
        """In the order in which they come to their caps as the pool gives more."""
        # Of the members before, and of those from here on.
        self._caps = _sums(m.cap for m in self.members)
        self._full_rows = _sums(m.cap / m.per_row for m in self.members)
        self._pulls = _sums(m.pull for m in reversed(self.members))[::-1]
        self._pull_rows = _sums(m.pull / m.per_row for m in reversed(self.members))[::-1]
        self._corners = [
            cap + m.cap / m.pull * pull
            for m, cap, pull in zip(self.members, self._caps, self._pulls, strict=False)
        ]
        self.capacity, self.most_rows = self._caps[-1], self._full_rows[-1]

    def rows(self, tokens: float) -> float:
        """Rows that hold so many tokens of the pool; `most_rows` from `capacity` on."""
        full, level = self._level(tokens)
        return self._full_rows[full] + level * self._pull_rows[full]

    def even_shares(self) -> list[float]:
        """The members' shares if none had a cap."""
        return [m.pull / self._pulls[0] for m in self.members]

    def shares(self, tokens: float) -> list[float]:
        """The members' shares of so many tokens; the same as long as none is at its cap."""
        full, level = self._level(tokens)
        if not full:
            return self.even_shares()
        given = [m.cap if i < full else level * m.pull for i, m in enumerate(self.members)]
        return [x / math.fsum(given) for x in given] if tokens else given

    def _level(self, tokens: float) -> tuple[int, float]:
        """How many members are at their caps, and what the others give for each unit of pull."""
        full = bisect.bisect_left(self._corners, tokens)
        if full == len(self.members):
            return full, 0.0
        return full, max(tokens - self._caps[full], 0.0) / self._pulls[full]


class Length(NamedTuple):
    """A stage: how many rows, and the pools' shares of its tokens, which sum up to 1."""

    rows: int
    shares: Mapping[str, float]


class Solution(NamedTuple):
    """Shares within the limits."""

    shares: list[Mapping[str, float]]
    """Of each stage's tokens, by pool; exactly those asked for where no pool is short."""
    tokens: dict[str, float]
    """Given by each pool."""
    short: frozenset[str]
    """Pools that give all they have, and less than they are asked for."""


def solve(pools: Mapping[str, Pool], stages: Sequence[Length]) -> Solution:
    """The shares that keep every limit. `Unfilled` if there are none.

    Each stage has a level, the tokens that it would have if nothing ran short: it asks each pool
    for its share of them, a pool gives each stage the same part of what it is asked for, and the
    levels are those at which every stage has its rows. One level after the other is raised until
    that is so.
    """
    _check_rows(pools, stages)
    levels, before = [0.0] * len(stages), [-1.0] * len(stages)
    for _ in range(SWEEPS):
        if all(abs(a - b) <= PRECISION * a for a, b in zip(levels, before, strict=True)):
            break
        before = list(levels)
        for k in range(len(stages)):
            levels[k] = _raised(pools, stages, levels, k)
    asked = _asked(pools, stages, levels)
    parts = {name: min(pools[name].capacity / x, 1.0) if x else 1.0 for name, x in asked.items()}
    return Solution(
        shares=[_scaled(stage.shares, parts) for stage in stages],
        tokens={name: min(x, pools[name].capacity) for name, x in asked.items()},
        short=frozenset(name for name, part in parts.items() if part < 1 - ROUNDING),
    )


def _check_rows(pools: Mapping[str, Pool], stages: Sequence[Length]) -> None:
    """Stages can be filled if any of them together find their rows in the pools that they take."""
    drawn = [frozenset(p for p, share in s.shares.items() if share) for s in stages]
    kinds = list(dict.fromkeys(drawn))
    for n in range(1, len(kinds) + 1):
        for some in itertools.combinations(kinds, n):
            taken = frozenset[str]().union(*some)
            within = [k for k, s in enumerate(stages) if s.rows and drawn[k] <= taken]
            most = math.fsum(pools[p].most_rows for p in taken)
            if sum(stages[k].rows for k in within) > most * (1 + ROUNDING):
                raise Unfilled(within[0], sorted(taken))


def _asked(
    pools: Mapping[str, Pool], stages: Sequence[Length], levels: Sequence[float]
) -> dict[str, float]:
    """Tokens that each pool is asked for."""
    return {
        p: math.fsum(level * s.shares[p] for level, s in zip(levels, stages, strict=True))
        for p in pools
    }


def _raised(
    pools: Mapping[str, Pool], stages: Sequence[Length], levels: Sequence[float], k: int
) -> float:
    """The level at which stage k has its rows, the other levels as they are."""
    rows, shares = stages[k]
    if not rows:
        return 0.0
    others = _asked(pools, stages, [0.0 if i == k else x for i, x in enumerate(levels)])

    def missing(level: float) -> float:
        found = []
        for p, share in shares.items():
            if share and level:
                asked = others[p] + level * share
                found.append(pools[p].rows(min(asked, pools[p].capacity)) * level * share / asked)
        return rows - math.fsum(found)

    return _root(missing, levels[k] or float(rows), rows * PRECISION)


def _root(f: Callable[[float], float], start: float, enough: float) -> float:
    """Where a falling function, above 0 at 0, is 0 or less by no more than `enough`.

    The Illinois method (Dowell and Jarratt 1971): false position, where the end that stays is made
    lighter.
    """
    low, high, at_low, at_high = 0.0, start, f(0.0), f(start)
    while at_high > enough:
        low, high, at_low, at_high = high, 2 * high, at_high, f(2 * high)
    weight_low, weight_high, rose = at_low, at_high, None
    while at_high < -enough:
        middle = (high * weight_low - low * weight_high) / (weight_low - weight_high)
        at_middle = f(middle)
        if at_middle > enough:
            weight_high = weight_high / 2 if rose else weight_high
            low, weight_low, rose = middle, at_middle, True
        else:
            weight_low = weight_low / 2 if rose is False else weight_low
            high, weight_high, at_high, rose = middle, at_middle, at_middle, False
    return high


def _scaled(shares: Mapping[str, float], parts: Mapping[str, float]) -> Mapping[str, float]:
    """The shares of a stage when each pool gives only a part of what it is asked for."""
    given = {p: share * parts[p] for p, share in shares.items()}
    return normal(given) if given != shares and any(given.values()) else shares


def normal(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights as shares of 1, by name."""
    total = math.fsum(weights.values())
    return {name: weights[name] / total for name in sorted(weights)}


def _sums(numbers: Iterable[float]) -> list[float]:
    """0, the first, the first two, ..., all of them."""
    return list(itertools.accumulate(numbers, initial=0.0))
