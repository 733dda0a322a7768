"""When checkpoints and snapshots are due: by the position, at chosen moments, and by the clock."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from jaxlm.config import Config

FIRST_MINUTES = 5.0
"""Of a run with preemptions, until its first save has shown what one costs."""
DAY_S = 24 * 3600.0


class Cost(NamedTuple):
    """Of a save, in seconds."""

    stall_s: float
    """That its start took."""
    commit_s: float
    """From there until it was whole."""


def best_interval(cost: Cost, per_day: float) -> float:
    """Seconds between saves that lose least: Young's first-order optimum (1974).

    The next save cannot begin before the last is whole; `per_day`: preemptions of the whole job.
    """
    return max(math.sqrt(2 * cost.stall_s * DAY_S / per_day), cost.commit_s)


@dataclass(frozen=True)
class Schedule:
    """When one kind is due."""

    every_rows: int | None
    every_s: float
    moments: tuple[int, ...] = ()
    """Rows; what is saved there is kept for ever."""
    preemptions_per_day: float | None = None

    def next_row(self, position: int) -> int | None:
        """Where the position asks for the next one; None if it never will."""
        rows = [moment for moment in self.moments if moment > position]
        if self.every_rows is not None:
            rows.append((position // self.every_rows + 1) * self.every_rows)
        return min(rows, default=None)

    def asks(self, before: int, position: int) -> bool:
        """Whether the position alone asks for one, of a step from `before` to it."""
        row = self.next_row(before)
        return row is not None and row <= position

    def chosen(self, before: int, position: int) -> bool:
        """Whether it has come to one of the moments."""
        return any(before < moment <= position for moment in self.moments)

    def interval_s(self, cost: Cost | None) -> float:
        """By the clock; `cost`: of the save before, if there was one."""
        if self.preemptions_per_day is None:
            return self.every_s
        if cost is None:
            return min(60 * FIRST_MINUTES, self.every_s)
        return min(best_interval(cost, self.preemptions_per_day), self.every_s)


def of_full(cfg: Config) -> Schedule:
    """Of full checkpoints; the end of the run has one besides."""
    c = cfg.checkpoint
    every = None if c.every is None else cfg.rows("checkpoint.every")
    moments = tuple(cfg.to_rows(moment, "config.checkpoint.at") for moment in c.at)
    return Schedule(every, _seconds(c.every_minutes), moments, c.preemptions_per_day)


def of_snapshots(cfg: Config) -> Schedule:
    """Of snapshots; the end of the run has none."""
    c = cfg.checkpoint
    every = None if c.snapshot_every is None else cfg.rows("checkpoint.snapshot_every")
    return Schedule(every, _seconds(c.snapshot_every_minutes))


def _seconds(minutes: float | None) -> float:
    return math.inf if minutes is None else 60 * minutes
