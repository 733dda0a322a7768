"""The plan of a run: from shares of tokens by type to rows by source, and what runs short.

A stage asks for shares of the types of text, in tokens. The sources of a type share what it gets by
their tokens times their weights. No source is gone through more than `max_epochs` times in the
whole run: what it cannot give, the other sources of its type give, and when they are all at their
limits the type runs short, and the other types give more (`shares`).

Rows all have as many targets, but BOS and PAD weigh nothing: a source's share of the rows is its
share of the tokens over the tokens in a row of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from jaxlm.data import order
from jaxlm.data.order import Order, OrderError
from jaxlm.data.shares import (
    ROUNDING,
    WEIGHTS,
    Length,
    Member,
    Pool,
    Solution,
    Unfilled,
    is_weight,
    normal,
    solve,
)

WHERE = (
    " (recipe: config.mixture.tokens, .max_epochs, .tolerance; run: config.train.end, "
    "config.data.max_epochs, .mixture_tolerance)"
)
"""Where what an error advises is set."""


class Supply(NamedTuple):
    """What a corpus has of one source."""

    source: str
    type: str
    rows: int
    """Whole rows."""
    tokens: float
    """Targets in them that weigh something."""
    weight: float
    """How often a token of it is drawn, relative to the other sources of its type."""


class Stage(NamedTuple):
    """A stretch of the run with one mixture."""

    until: int | Fraction | None
    """The row where it ends, or as a fraction the share of the run; None in the last stage."""
    weights: Mapping[str, float]
    """Type -> share of the tokens, relative; 0 leaves a type out."""


class TypePart(NamedTuple):
    """What a run draws of one type."""

    name: str
    asked: float
    """Share of the run's tokens if nothing ran short."""
    planned: float
    """Share within the limits."""
    real: float
    """Share that the order draws: as planned, but for rounding and an unfinished block."""
    tokens: float
    """Drawn."""
    epochs: float
    """How often the run goes through it."""
    needed: float
    """Tokens that the run asks for."""
    capacity: float
    """Tokens that there are, repeated as often as allowed."""


class SourcePart(NamedTuple):
    """What a run draws of one source."""

    supply: Supply
    asked: float
    """Share of the run's tokens if nothing ran short."""
    real: float
    """Share that the order draws."""
    rows: int
    """Drawn."""
    epochs: float
    full: bool
    """Planned at its limit."""


class StagePart(NamedTuple):
    """What a run draws in one stage: type -> share of the stage's tokens, as in `TypePart`."""

    start: int
    end: int
    asked: Mapping[str, float]
    planned: Mapping[str, float]
    real: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """What a run draws."""

    mixture: "Mixture"
    end: int
    """Rows of the run."""
    order_stages: tuple[order.Stage, ...]
    """For `Order`: weights by source, in rows."""
    types: tuple[TypePart, ...]
    sources: tuple[SourcePart, ...]
    stages: tuple[StagePart, ...]
    """Those that the run reaches."""

    @property
    def parts(self) -> tuple[StagePart, ...]:
        """The run as if it were one stage, and its stages."""
        asked = {t.name: t.asked for t in self.types}
        planned = {t.name: t.planned for t in self.types}
        real = {t.name: t.real for t in self.types}
        return (StagePart(0, self.end, asked, planned, real), *self.stages)

    @property
    def off(self) -> float:
        """The greatest difference of a planned share from the one asked for: run and stages."""
        return max(abs(p.planned[t] - p.asked[t]) for p in self.parts for t in p.asked)


class _Demand(NamedTuple):
    """What a stage asks for."""

    until: int | None
    """As the order takes it."""
    start: int
    rows: int
    """Of the run, from whole block to whole block."""
    asked_rows: int
    """The same without rounding."""
    shares: dict[str, float]
    """Type -> share of the tokens."""


@dataclass(frozen=True)
class Mixture:
    """What is asked for, and of what."""

    supplies: tuple[Supply, ...]
    stages: tuple[Stage, ...]
    """Empty: each source by its tokens times its weight."""
    max_epochs: float
    seq_len: int
    """Targets in a row."""
    seed: int
    block_rows: int
    """As the order's."""
    tolerance: float
    """How far the planned share of a type may be from the one asked for."""

    def __post_init__(self) -> None:
        if not self.supplies:
            raise OrderError("the corpus has no text to train on; build it with more")
        for k, stage in enumerate(self.stages):
            self._check_weights(k, stage.weights)
        for k, stage in enumerate(self.stages or self._natural()):
            self._check_supply(k, stage.weights)

    def plan(self, end: int) -> Plan:
        """The plan for a run of `end` rows, at least 1.

        `OrderError` if its stages are lost in the rounding to blocks, or no proportions of the
        types would fill it within the limits.
        """
        if end < 1:
            raise OrderError(
                f"a run of {end} rows of {self.seq_len} tokens draws nothing; make it longer"
            )
        demands = self._demands(end)
        stages = self.stages or self._natural()
        for k, (stage, demand) in enumerate(zip(stages, demands, strict=True)):
            if not demand.rows and (demand.asked_rows or isinstance(stage.until, Fraction)):
                lower = "lower block_rows, " if self.block_rows > 1 else ""
                raise OrderError(
                    f"stage {k} of the mixture has {demand.asked_rows} of {end} rows and is lost: "
                    f"stages begin with whole blocks, block_rows={self.block_rows}; {lower}give "
                    "the stage more of the run, or make the run longer (recipe: config.mixture; "
                    "run: config.data.mixture, .block_rows, config.train.end)"
                )
        try:
            return self._plan(demands)
        except Unfilled as unfilled:
            rows = sum(s.rows for s in self.supplies if s.type in unfilled.pools and s.weight)
            raise OrderError(
                f"the corpus is too small for {self.length(end)}: stage {unfilled.stage} of the "
                f"mixture takes {', '.join(unfilled.pools)} alone, which is {self.length(rows)}, "
                f"each to be used max_epochs={self.max_epochs:g} times at most; "
                f"{self.shorter(end)}, add text, or raise max_epochs{WHERE}"
            ) from None

    def longest(self, below: int | None = None) -> int:
        """Rows of the longest run, shorter than `below`, that gives each type its share; or 0.

        No type is short in it, and rounding takes no share further off than the tolerance.
        """
        most = sum(math.ceil(self.max_epochs * s.rows) for s in self.supplies) + 1
        low, high = 0, most if below is None else min(most, below)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._suffices(middle) else (low, middle)
        # Where every last row is needed, the rounding of blocks may ask for one too many, or move
        # the end of a stage too far.
        whole = low - low % self.block_rows
        blocks = [whole - n * self.block_rows for n in range(20)]
        for rows in (low, int(low * 0.999), *blocks, int(low * 0.9), int(low * 0.7)):
            try:
                if rows > 0 and self._plan(self._demands(rows)).off <= self.tolerance + ROUNDING:
                    return rows
            except (Unfilled, OrderError):
                continue
        return 0

    def length(self, rows: int) -> str:
        """So many rows, for people."""
        return f"{rows:,} rows ({count(rows * self.seq_len)} tokens)"

    def shorter(self, end: int) -> str:
        """The advice to make a run of `end` rows shorter, if that helps."""
        rows = self.longest(end)
        return f"train on {self.length(rows)} at most" if rows else "no shorter run helps"

    # ---- what is asked for -----------------------------------------------------------------------

    def _check_weights(self, k: int, weights: Mapping[str, float]) -> None:
        types = sorted({s.type for s in self.supplies})
        faults = {
            "names": [t for t in sorted(weights) if t not in types],
            "gives no weight to": [t for t in types if t not in weights],
        }
        if any(faults.values()):
            found = (f"{what} {', '.join(map(repr, t))}" for what, t in faults.items() if t)
            raise OrderError(
                f"stage {k} of the mixture {' and '.join(found)}; the types of the corpus are "
                f"{', '.join(types)}: give each a weight, 0 to leave it out"
            )
        bad = [f"{name}={w}" for name, w in weights.items() if not is_weight(w)]
        if bad or not any(weights.values()):
            raise OrderError(
                f"stage {k} of the mixture: weights {bad or 'all 0'}: must be {WEIGHTS}, and one "
                "above 0"
            )

    def _check_supply(self, k: int, weights: Mapping[str, float]) -> None:
        for type, weight in weights.items():
            of_type = [s for s in self.supplies if s.type == type]
            # Without stages its weight is 0 because it has no rows: not to be passed over either.
            if (weight or not self.stages) and not any(s.rows for s in of_type):
                raise OrderError(
                    f"type {type!r} has not one row of seq_len={self.seq_len}: no shard is so "
                    "long; lower seq_len, build the corpus with more text, or give the type the "
                    "weight 0 in the mixture"
                )
            if weight and not any(s.rows and s.weight for s in of_type):
                raise OrderError(
                    f"stage {k} of the mixture takes type {type!r}, whose sources all have the "
                    "weight 0 in the recipe; give one another, or give the type the weight 0"
                )
        if not any(weights.values()):
            raise OrderError(
                "the sources all have the weight 0 in the recipe: there is nothing to draw; give "
                "one another"
            )

    def _natural(self) -> tuple[Stage]:
        """Each source by its tokens times its weight."""
        types = sorted({s.type for s in self.supplies})
        sizes = {t: [s.tokens * s.weight for s in self.supplies if s.type == t] for t in types}
        return (Stage(None, {t: math.fsum(size) for t, size in sizes.items()}),)

    def _demands(self, end: int) -> list[_Demand]:
        found, start, asked_start = [], 0, 0
        for stage in self.stages or self._natural():
            until = stage.until
            if isinstance(until, Fraction):
                until = int(until * end)
            stop = asked_stop = end
            if until is not None:
                stop = min(-(-until // self.block_rows) * self.block_rows, end)
                asked_stop = max(min(until, end), asked_start)
            rows, asked_rows = max(stop - start, 0), asked_stop - asked_start
            found.append(_Demand(until, start, rows, asked_rows, normal(stage.weights)))
            start, asked_start = start + rows, asked_stop
        return found

    # ---- what it becomes -------------------------------------------------------------------------

    def _plan(self, demands: Sequence[_Demand]) -> Plan:
        end = sum(d.rows for d in demands)
        rows = {s.source: order.Source((s.rows,), 1) for s in self.supplies}
        most, lower = self._limits(), dict.fromkeys(rows, 0)
        whole = self._pools(most)
        while True:
            pools = self._pools({name: max(n - lower[name], 0) for name, n in most.items()})
            solution = solve(pools, [Length(d.rows, d.shares) for d in demands])
            stages = _order_stages(demands, pools, solution, sorted(rows))
            made = Order(rows, stages, self.seed, self.block_rows)
            drawn = dict(zip(made.names, made.draws(end).tolist(), strict=True))
            over = {name: n - most[name] for name, n in drawn.items() if n > most[name]}
            if not over:
                return _Made(self, demands, pools, whole, solution, made, stages).plan()
            # By how blocks are rounded, and the last one is cut off; so they are planned for fewer.
            lower |= {name: lower[name] + n for name, n in over.items()}

    def _limits(self) -> dict[str, int]:
        """Source -> rows that the run may draw of it."""
        return {s.source: math.floor(self.max_epochs * s.rows) for s in self.supplies}

    def _suffices(self, end: int) -> bool:
        """Whether a run of `end` rows finds enough of each type."""
        stages = [Length(d.asked_rows, d.shares) for d in self._demands(end)]
        try:
            return not solve(self._pools(self._limits()), stages).short
        except Unfilled:
            return False

    def _pools(self, limits: Mapping[str, int]) -> dict[str, Pool]:
        members: dict[str, list[Member]] = {}
        for s in sorted(self.supplies):
            of_type = members.setdefault(s.type, [])
            if s.tokens and s.weight:
                rate = s.tokens / s.rows
                of_type.append(Member(s.source, s.tokens * s.weight, limits[s.source] * rate, rate))
        return {type: Pool(members[type]) for type in sorted(members)}


def _order_stages(
    demands: Sequence[_Demand],
    pools: Mapping[str, Pool],
    solution: Solution,
    names: Sequence[str],
) -> tuple[order.Stage, ...]:
    found = []
    for demand, shares in zip(demands, solution.shares, strict=True):
        weights = dict.fromkeys(names, 0.0)
        for type, pool in pools.items():
            mix = pool.shares(solution.tokens[type])
            for member, share in zip(pool.members, mix, strict=True):
                weights[member.name] = shares[type] * share / member.per_row
        found.append(order.Stage(demand.until, tuple(weights.items())))
    return tuple(found)


class _Made(NamedTuple):
    """All that a plan is told from."""

    mixture: Mixture
    demands: Sequence[_Demand]
    pools: Mapping[str, Pool]
    whole: Mapping[str, Pool]
    """The pools before room was made for rounding."""
    solution: Solution
    made: Order
    order_stages: tuple[order.Stage, ...]

    def plan(self) -> Plan:
        """The plan."""
        supplies = {s.source: s for s in self.mixture.supplies}
        by_name = [supplies[name] for name in self.made.names]
        rate_S = np.array([s.tokens / max(s.rows, 1) for s in by_name])
        of_type_TS = np.array([[s.type == t for s in by_name] for t in self.pools])
        edges = [0, *(d.start + d.rows for d in self.demands)]
        rows_KS = np.diff([self.made.draws(edge) for edge in edges], axis=0)
        tokens_KT = (rows_KS * rate_S) @ of_type_TS.T
        return Plan(
            mixture=self.mixture,
            end=edges[-1],
            order_stages=self.order_stages,
            types=self._types(tokens_KT.sum(axis=0)),
            sources=self._sources(by_name, rows_KS.sum(axis=0), rate_S),
            stages=tuple(
                StagePart(d.start, d.start + d.rows, d.shares, shares, self._shares(tokens_T))
                for d, shares, tokens_T in zip(
                    self.demands, self.solution.shares, tokens_KT, strict=True
                )
                if d.rows
            ),
        )

    def _shares(self, tokens_T: np.ndarray) -> dict[str, float]:
        return normal(dict(zip(self.pools, tokens_T.tolist(), strict=True)))

    def _types(self, tokens_T: np.ndarray) -> tuple[TypePart, ...]:
        planned, real = normal(self.solution.tokens), self._shares(tokens_T)
        needed = self._needed()
        asked = normal(needed)
        found = []
        for type, drawn in zip(self.pools, tokens_T.tolist(), strict=True):
            size = math.fsum(s.tokens for s in self.mixture.supplies if s.type == type)
            epochs = drawn / size if size else 0.0
            shares, capacity = (asked[type], planned[type], real[type]), self.whole[type].capacity
            found.append(TypePart(type, *shares, drawn, epochs, needed[type], capacity))
        return tuple(found)

    def _sources(
        self, supplies: Sequence[Supply], rows_S: np.ndarray, rate_S: np.ndarray
    ) -> tuple[SourcePart, ...]:
        asked = normal(self._needed())
        share, full = dict.fromkeys(self.made.names, 0.0), set[str]()
        for type, pool in self.pools.items():
            given = self.solution.tokens[type]
            mixes = zip(pool.members, pool.even_shares(), pool.shares(given), strict=True)
            for member, even, real in mixes:
                share[member.name] = asked[type] * even
                if given * real >= member.cap * (1 - ROUNDING):
                    full.add(member.name)
        real_S = rows_S * rate_S / (rows_S @ rate_S)
        return tuple(
            SourcePart(s, share[s.source], real, n, n / max(s.rows, 1), s.source in full)
            for s, real, n in zip(supplies, real_S.tolist(), rows_S.tolist(), strict=True)
        )

    def _needed(self) -> dict[str, float]:
        """Type -> tokens that the run asks for, if its rows hold as many as they are planned to."""
        rates = dict[str, float]()
        for type, planned in self.solution.tokens.items():
            # None is planned of what is not asked for, and of what rounding takes whole.
            pool = self.pools[type] if planned else self.whole[type]
            if given := planned or pool.capacity:
                rates[type] = given / pool.rows(given)
        found = dict.fromkeys(self.pools, 0.0)
        for demand in self.demands:
            rows = math.fsum(share / rates[type] for type, share in demand.shares.items() if share)
            for type, share in demand.shares.items():
                found[type] += share * demand.asked_rows / rows
        return found


def count(tokens: float) -> str:
    """A number of tokens for people: three digits and a unit."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if tokens >= 0.9995 * size:
            return f"{tokens / size:.3g}{unit}"
    return f"{tokens:,.0f}"
