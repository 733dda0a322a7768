"""The order of training: position <-> (source, epoch, shard, row), by arithmetic alone.

A position is the number of a row (sequence) in the order of a run; the order is endless, has no
state, and does not know of hosts, devices or batches. It is made of two parts:

1. The mixture. Positions fall into blocks of `block_rows`. In each block every source has its share
   of the slots, rounded up or down so that the sums stay exact (`spread`), and a permutation of the
   block's own says which position takes which slot. The slots of a source, block after block, are
   its draws 0, 1, 2, ...
2. The walk of a source. Draw n is row n % rows of epoch n // rows. In each epoch the shards are
   permuted, laid end to end, and rows are permuted inside windows of `window_rows`, so that a
   reader needs only the shards of one window at hand.

Every permutation is keyed by a hash of (seed, purpose, source, epoch, window), so no epoch of one
seed is an epoch of another. Arrays in, arrays out; positions are int64 below 2**62.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from jaxlm.data.permutation import permute
from jaxlm.data.spread import PERIOD, Spread
from jaxlm.errors import UserError

VERSION = 2
"""Part of the fingerprint: raise it whenever the same inputs come to give another order."""

LIMIT = 2**62
"""Positions and draws are below it."""


class OrderError(UserError):
    """An order that cannot be had: names the stage or source, the numbers and the remedy."""


class Stage(NamedTuple):
    """A stretch of the order with one mixture."""

    until: int | None
    """The position where it ends, rounded up to whole blocks; None in the last stage, which has no
    end."""
    weights: tuple[tuple[str, float], ...]
    """(source, weight), each source once; weights are relative, 0 leaves a source out."""


class Source(NamedTuple):
    """What the order must know of a source."""

    shard_rows: tuple[int, ...]
    """Rows of each shard."""
    window_rows: int
    """Rows are shuffled inside windows of so many."""


class Location(NamedTuple):
    """Where rows lie; int64 arrays of one shape."""

    source: np.ndarray
    """Index into `Order.names`."""
    epoch: np.ndarray
    shard: np.ndarray
    """Index into the source's shards."""
    row: np.ndarray
    """Index into the shard's rows."""


class Order:
    """The order of a run, from its sources, stages and seed."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        stages: Sequence[Stage],
        seed: int,
        block_rows: int = 100,
    ):
        """`OrderError` if stages and sources do not fit each other, or a count rounds to zero."""
        self._walk = _Walk({name: sources[name] for name in sorted(sources)}, seed)
        self.names = self._walk.names
        """The sources; sorted, so that the order does not depend on how they were listed."""
        rows = dict(zip(self.names, self._walk.rows.tolist(), strict=True))
        self._mixture = _Mixture(rows, stages, seed, block_rows)

    def locate(self, positions: np.ndarray) -> Location:
        """Where the rows of these positions (int64[N]) lie."""
        source, draw = self._mixture.draw(positions)
        return Location(source, *self._walk.locate(source, draw))

    def position_of(self, where: Location) -> np.ndarray:
        """The positions (int64[N]) of these rows; -1 for a row that is never drawn.

        That is a row of an epoch which its source does not reach, before position 2**62 at least:
        its weight falls to 0 for good. `OrderError` for a shard or row that does not exist.
        """
        where = Location(*(np.atleast_1d(np.asarray(a, np.int64)) for a in where))
        return self._mixture.position(where.source, self._walk.draw(where))

    def draws(self, position: int) -> np.ndarray:
        """int64[S]: rows of each source drawn before `position`."""
        return self._mixture.draws(position)

    @property
    def stage_starts(self) -> tuple[int, ...]:
        """Position at which each stage of the mixture begins."""
        return self._mixture.starts

    def epochs(self, end: int) -> dict[str, float]:
        """Source -> how often a run that ends at position `end` goes through it."""
        rows = np.maximum(self._walk.rows, 1)
        return dict(zip(self.names, (self.draws(end) / rows).tolist(), strict=True))

    def fingerprint(self) -> dict[str, Any]:
        """What decides the order besides the shards' rows, as plain data for JSON."""
        return {
            "order_version": VERSION,
            **self._walk.fingerprint(),
            **self._mixture.fingerprint(),
        }


class _Mixture:
    """Position <-> (source, draw)."""

    def __init__(
        self, rows: Mapping[str, int], stages: Sequence[Stage], seed: int, block_rows: int
    ):
        if block_rows < 1:
            raise OrderError(f"block_rows={block_rows}: must be at least 1")
        self._seed, self._block_rows = seed, block_rows
        self._starts = _stage_starts(stages, block_rows)
        self._counts = [_counts(i, stage, rows, block_rows) for i, stage in enumerate(stages)]
        self._spreads = [Spread(counts, LIMIT // block_rows + 2) for counts in self._counts]
        self._drawn = np.zeros((len(stages), len(rows)), np.int64)
        for k, blocks in enumerate(np.diff(self._starts)):
            before = self._spreads[k].before(blocks[None])
            self._drawn[k + 1] = self._drawn[k] + before[0]

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple((self._starts * self._block_rows).tolist())

    def draw(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = np.asarray(positions)  # beyond int64 they are Python's integers
        if positions.size and not 0 <= positions.min() <= positions.max() < LIMIT:
            raise OrderError(
                f"positions {positions.min()}..{positions.max()}: must be in [0, 2**62)"
            )
        block, offset = np.divmod(positions.astype(np.int64), self._block_rows)
        block, at = np.unique(block, return_inverse=True)
        ends, before = self._blocks(block)
        slot = permute(offset, self._block_rows, self._keys(block)[at])
        # The blocks end to end, so that one search finds the source of any slot.
        starts = np.arange(len(block)) * self._block_rows
        found = np.searchsorted((starts[:, None] + ends).ravel(), starts[at] + slot, side="right")
        source = found - at * ends.shape[1]
        return source, before[at, source] + slot - _first_slot(ends, at, source)

    def position(self, source: np.ndarray, draw: np.ndarray) -> np.ndarray:
        # The stage of a draw: the last one to start at or before it. A stage which draws nothing
        # starts at the same draw as the next, so only one that ends the order can be found.
        stage = (self._drawn[:, source] <= draw).sum(axis=0) - 1
        block = np.zeros_like(draw)
        for at in _groups(stage):
            k = stage[at[0]]
            of_stage = draw[at] - self._drawn[k, source[at]]
            block[at] = self._starts[k] + self._spreads[k].block(source[at], of_stage)
        has_slots = np.array(self._counts)[stage, source] > 0
        reached = (draw >= 0) & has_slots & (block <= LIMIT // self._block_rows)
        block, at = np.unique(np.where(reached, block, 0), return_inverse=True)
        ends, before = self._blocks(block)
        slot = np.where(reached, _first_slot(ends, at, source) + draw - before[at, source], 0)
        offset = permute(slot, self._block_rows, self._keys(block)[at], inverse=True)
        return np.where(reached, block[at] * self._block_rows + offset, -1)

    def draws(self, position: int) -> np.ndarray:
        block, offset = divmod(position, self._block_rows)
        _, before = self._blocks(np.array([block]))
        begun, _ = self.draw(np.arange(position - offset, position))
        return before[0] + np.bincount(begun, minlength=before.shape[1])

    def fingerprint(self) -> dict[str, Any]:
        return {
            "block_rows": self._block_rows,
            "stage_starts": (self._starts * self._block_rows).tolist(),
            "stage_counts": self._counts,
        }

    def _blocks(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[N, S] twice: where each source's slots end in a block, and draws of it before."""
        ends = np.empty((len(block), self._drawn.shape[1]), np.int64)
        before = np.empty_like(ends)
        stage = np.searchsorted(self._starts, block, side="right") - 1
        for at in _groups(stage):
            k = stage[at[0]]
            of_stage = block[at] - self._starts[k]
            ends[at] = self._spreads[k].ends(of_stage)
            before[at] = self._drawn[k] + self._spreads[k].before(of_stage)
        return ends, before

    def _keys(self, block: np.ndarray) -> np.ndarray:
        """uint64[N]: of the permutations of the slots of blocks."""
        return np.array([_key(self._seed, "mixture", b) for b in block.tolist()], np.uint64)


def _first_slot(ends: np.ndarray, block: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The first slot of each source in its block, from the ends of the slots."""
    return np.where(source > 0, ends[block, source - 1], 0)


def _stage_starts(stages: Sequence[Stage], block_rows: int) -> np.ndarray:
    """int64[K]: the first block of each stage."""
    starts = [0]
    for i, stage in enumerate(stages[:-1]):
        if stage.until is None:
            raise OrderError(f"stage {i} has no end, so stage {i + 1} never comes; set its until")
        starts.append(-(-stage.until // block_rows))
        if starts[-1] <= starts[-2]:
            raise OrderError(
                f"stage {i} is empty: rows {starts[-2] * block_rows} to until={stage.until}, "
                f"rounded up to whole blocks of {block_rows}; move its end or lower block_rows"
            )
    if not stages or stages[-1].until is not None:
        raise OrderError("the last stage must have no end: until=None")
    return np.array(starts, np.int64)


def _counts(i: int, stage: Stage, rows: Mapping[str, int], block_rows: int) -> list[int]:
    """Slots of each source in a period of stage i: shares rounded by largest remainder."""
    weights, listed = dict(stage.weights), [name for name, _ in stage.weights]
    for name in sorted({*listed, *rows}):
        if name not in rows:
            raise OrderError(f"stage {i}: no source {name!r} here; sources: {', '.join(rows)}")
        if listed.count(name) != 1:
            raise OrderError(
                f"stage {i} gives source {name!r} {listed.count(name)} weights; give one, "
                "0.0 to leave it out"
            )
    bad = [f"{name}={w}" for name, w in weights.items() if not 0 <= w < float("inf")]
    if bad or not any(weights.values()):
        raise OrderError(f"stage {i}: weights {bad or 'all 0'}: must be at least 0, one above")
    # Fractions: the counts must come out alike on every machine.
    total = sum(Fraction(w) for w in weights.values())
    exact = {name: Fraction(weights[name]) * PERIOD * block_rows / total for name in rows}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(rows, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: PERIOD * block_rows - sum(counts.values())]:
        counts[name] += 1
    for name, count in counts.items():
        if weights[name] and not count:
            raise OrderError(
                f"stage {i}: weight {weights[name]:g} of source {name!r} is "
                f"{float(exact[name] / PERIOD):.2g} rows in a block of {block_rows}, too few to "
                "count; raise the weight, or set it to 0.0"
            )
        if count and not rows[name]:
            raise OrderError(
                f"stage {i}: source {name!r} has weight {weights[name]:g} but not one row; "
                "set the weight to 0.0, or rebuild the source with more text"
            )
    return list(counts.values())


class _Walk:
    """The endless walk through each source: (source, draw) <-> (epoch, shard, row)."""

    def __init__(self, sources: Mapping[str, Source], seed: int):
        for name, source in sources.items():
            if source.window_rows < 1:
                raise OrderError(f"source {name!r}: window_rows={source.window_rows}: at least 1")
        self.names = tuple(sources)
        self._seed = seed
        self._shard_rows = [np.array(s.shard_rows, np.int64) for s in sources.values()]
        self.rows = np.array([rows.sum() for rows in self._shard_rows], np.int64)
        self._window_rows = np.array([s.window_rows for s in sources.values()], np.int64)
        self._layout = functools.lru_cache(maxsize=256)(self._lay_out)

    def locate(
        self, source: np.ndarray, draw: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        epoch, index = np.divmod(draw, self.rows[source])
        index = self._shuffle(source, epoch, index)
        shard, row = np.empty_like(draw), np.empty_like(draw)
        for at in _groups(source, epoch):
            order, starts = self._layout(int(source[at[0]]), int(epoch[at[0]]))
            # Of shards that start at one index, all but the last are empty.
            place = np.searchsorted(starts, index[at], side="right") - 1
            shard[at], row[at] = order[place], index[at] - starts[place]
        return epoch, shard, row

    def draw(self, where: Location) -> np.ndarray:
        """The draw of each row, -1 beyond the limit."""
        self._check(where)
        source, epoch, shard, row = where
        reached = epoch <= LIMIT // self.rows[source]
        epoch = np.where(reached, epoch, 0)
        index = np.empty_like(row)
        for at in _groups(source, epoch):
            order, starts = self._layout(int(source[at[0]]), int(epoch[at[0]]))
            place = np.argsort(order)
            index[at] = starts[place[shard[at]]] + row[at]
        index = self._shuffle(source, epoch, index, inverse=True)
        return np.where(reached, epoch * self.rows[source] + index, -1)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "window_rows": dict(zip(self.names, self._window_rows.tolist(), strict=True)),
        }

    def _shuffle(
        self, source: np.ndarray, epoch: np.ndarray, index: np.ndarray, inverse: bool = False
    ) -> np.ndarray:
        window, within = np.divmod(index, self._window_rows[source])
        start = index - within
        size = np.minimum(self._window_rows[source], self.rows[source] - start)
        keys = np.empty(index.shape, np.uint64)
        for at in _groups(source, epoch, window):
            i = at[0]
            name = self.names[source[i]]
            keys[at] = _key(self._seed, "rows", name, int(epoch[i]), int(window[i]))
        return start + permute(within, size, keys, inverse)

    def _lay_out(self, source: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The shards in their order of the epoch, and the index at which each one's rows start."""
        shards = np.arange(len(self._shard_rows[source]))
        key = _key(self._seed, "shards", self.names[source], epoch)
        order = permute(shards, len(shards), np.array(key, np.uint64))
        rows = self._shard_rows[source][order]
        return order, np.cumsum(rows) - rows

    def _check(self, where: Location) -> None:
        for at in _groups(where.source):
            s = int(where.source[at[0]])
            if not 0 <= s < len(self.names):
                raise OrderError(f"source {s}: must be in [0, {len(self.names)})")
            epoch, shard, row = (column[at] for column in where[1:])
            shards = len(self._shard_rows[s])
            # One more shard, of no rows, at the end: it stands for all that do not exist.
            rows = np.append(self._shard_rows[s], 0)[np.clip(shard, -1, shards)]
            bad = np.flatnonzero((epoch < 0) | (row < 0) | (row >= rows))
            if bad.size:
                raise OrderError(
                    f"source {self.names[s]!r} has no epoch {epoch[bad[0]]}, "
                    f"shard {shard[bad[0]]}, row {row[bad[0]]}"
                )


def _groups(*columns: np.ndarray) -> list[np.ndarray]:
    """Indexes of the rows of a table, one array for each set of equal rows."""
    order = np.lexsort(columns)
    new = np.zeros(max(order.size - 1, 0), bool)
    for column in columns:
        new |= np.diff(column[order]) != 0
    return np.split(order, np.flatnonzero(new) + 1) if order.size else []


def _key(*names: int | str) -> int:
    """64 bits from what names a permutation."""
    digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
