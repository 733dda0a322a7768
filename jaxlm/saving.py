"""When checkpoints and snapshots are saved, and what becomes of a save that fails.

All processes must start the same saves at the same steps. What the position asks for they know by
themselves. What a clock asks for each tells the others through the step, which takes the maximum:
so the code of a process that is still writing comes last, and puts off what clocks ask for.
"""

import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import jax
from jax import numpy as jnp

from jaxlm import cluster
from jaxlm.checkpoint import Checkpoints, Cost
from jaxlm.clock import crossed
from jaxlm.config import Config
from jaxlm.errors import EnvironmentProblem
from jaxlm.models.transformer import Params

NOTHING, SNAPSHOT, FULL, WRITING = range(4)
"""What a process asks of all for its clock's sake."""

FIRST_MINUTES = 5.0
"""Of a run with preemptions, until its first save has shown what one costs."""
RETRY_S, RETRY_AT_MOST_S = 30.0, 1800.0
"""From a failed save to the next try; twice as long each time."""
LAST_WAITS_S = (5.0, 15.0, 45.0)
"""Between the tries of the save that a run ends with."""
DAY_S = 24 * 3600.0


def best_interval(stall_s: float, commit_s: float, per_day: float) -> float:
    """Seconds between saves that lose least: Young's first-order optimum (1974).

    `stall_s`: that training waits for a save; `commit_s`: until it is whole, before which the next
    cannot begin; `per_day`: preemptions of the whole job.
    """
    return max(math.sqrt(2 * stall_s * DAY_S / per_day), commit_s)


@dataclass(frozen=True)
class Schedule:
    """When one kind is due."""

    every_rows: int | None
    every_s: float
    moments: tuple[int, ...] = ()
    """Rows; what is saved there is kept for ever."""
    preemptions_per_day: float | None = None

    def asks(self, before: int, position: int) -> bool:
        """Whether the position alone asks for one."""
        return crossed(self.every_rows, before, position) or self.chosen(before, position)

    def chosen(self, before: int, position: int) -> bool:
        """Whether it has come to one of the moments."""
        return any(before < moment <= position for moment in self.moments)

    def interval_s(self, cost: Cost | None) -> float:
        """By the clock; `cost`: of the save before, if there was one."""
        if self.preemptions_per_day is None:
            return self.every_s
        if cost is None:
            return min(60 * FIRST_MINUTES, self.every_s)
        best = best_interval(cost.stall_s, cost.commit_s, self.preemptions_per_day)
        return min(best, self.every_s)


def of_full(cfg: Config) -> Schedule:
    """Of full checkpoints."""
    c = cfg.checkpoint
    every = None if c.every is None else cfg.rows("checkpoint.every")
    moments = tuple(cfg.to_rows(moment, "config.checkpoint.at") for moment in c.at)
    return Schedule(every, _seconds(c.every_minutes), moments, c.preemptions_per_day)


def of_snapshots(cfg: Config) -> Schedule:
    """Of snapshots."""
    c = cfg.checkpoint
    every = None if c.snapshot_every is None else cfg.rows("checkpoint.snapshot_every")
    return Schedule(every, _seconds(c.snapshot_every_minutes))


class Saver:
    """One kind of checkpoint of a run: starts saves, and sees to it that they end well."""

    def __init__(self, checkpoints: Checkpoints, schedule: Schedule):
        self._checkpoints, self.schedule = checkpoints, schedule
        self._last_s = time.monotonic()
        self._step: int | None = None
        """Of the save whose outcome the processes have not told each other yet."""
        self._failures, self._told = 0, False
        self.begun = checkpoints.latest() is not None
        """Whether there was a save: the same on all processes."""

    @property
    def due(self) -> bool:
        """Whether this process's clock asks for a save."""
        return time.monotonic() - self._last_s >= self._interval_s()

    @property
    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._checkpoints.busy

    def save(self, tree: Any, step: int, notes: dict[str, Any], for_ever: bool = False) -> None:
        """Starts a save, after the one before; returns once the arrays are copied."""
        self.finish()
        self._checkpoints.save(tree, step, notes, for_ever)
        self._last_s, self._step, self._told = time.monotonic(), step, False
        self.begun = True

    def save_last(self, tree: Any, step: int, notes: dict[str, Any]) -> None:
        """Saves and waits, again if need be. `EnvironmentProblem` if it cannot be done."""
        for wait_s in (*LAST_WAITS_S, None):
            self.save(tree, step, notes)
            problem = self.finish()
            if problem is None:
                return
            if wait_s is None:
                raise problem
            time.sleep(wait_s)

    def finish(self) -> EnvironmentProblem | None:
        """Waits for the save on its way, if there is one; what went wrong with it anywhere."""
        if self._step is None:
            return None
        self._tell_failure()
        step, self._step = self._step, None
        mine = self._checkpoints.wait()
        problems = cluster.gather(f"step {step} is saved", mine and str(mine))
        problem = next(filter(None, problems), None)
        if problem is None:
            self._failures = 0
            return None
        self._checkpoints.discard_failed()
        latest = self._checkpoints.latest()
        if latest == step:  # it is whole: what failed came after its commit
            self._failures = 0
            return None
        self._failures += 1
        self.begun = latest is not None
        return EnvironmentProblem(problem)

    def _interval_s(self) -> float:
        if not self.busy and self._checkpoints.wait() is not None:
            self._tell_failure()
            return min(RETRY_S * 2**self._failures, RETRY_AT_MOST_S)
        return self.schedule.interval_s(self._checkpoints.cost)

    def _tell_failure(self) -> None:
        problem = self._checkpoints.wait()
        if problem is not None and not self._told:
            line = f"process {jax.process_index()}: {problem}; it will be tried again"
            print(line, file=sys.stderr, flush=True)
            self._told = True


def wish(full: Saver, snapshots: Saver) -> int:
    """What this process's clocks ask for."""
    if full.busy or snapshots.busy:
        return WRITING
    return FULL if full.due else SNAPSHOT if snapshots.due else NOTHING


def _seconds(minutes: float | None) -> float:
    return math.inf if minutes is None else 60 * minutes


def snapshot_of(params: Params) -> dict[str, Params]:
    """What a snapshot holds: the parameters in bfloat16, where they lie."""
    return {"params": _to_bfloat16(params)}


@jax.jit
def _to_bfloat16(params: Params) -> Params:
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
