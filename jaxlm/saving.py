"""Starts the saves of checkpoints and snapshots, and tries again those that fail.

All processes must start the same saves at the same steps. What the position asks for they know by
themselves. What a clock asks for each tells the others through the step, which takes the maximum:
so the code of a process that is still writing comes last, and puts off what clocks ask for.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp

from jaxlm import cluster, terminal
from jaxlm.checkpoint import Checkpoints
from jaxlm.errors import EnvironmentProblem
from jaxlm.models.transformer import Params
from jaxlm.schedule import Schedule

NOTHING, SNAPSHOT, FULL, WRITING = range(4)
"""What a process asks of all for its clock's sake."""

RETRY_S, RETRY_AT_MOST_S = 30.0, 1800.0
"""From a failed save to the next try; twice as long each time."""
LAST_WAITS_S = (5.0, 15.0, 45.0)
"""Between the tries of the save that a run ends with."""


class Saver:
    """One kind of checkpoint of a run: starts saves, and sees to it that they end well."""

    def __init__(self, checkpoints: Checkpoints, schedule: Schedule):
        self._checkpoints, self.schedule = checkpoints, schedule
        self._last_s = time.monotonic()
        self._step: int | None = None
        """Of the save whose outcome the processes have not told each other yet."""
        self._failures, self._told = 0, False
        self._for_ever = False
        """Whether one that is kept for ever is owed: asked for, and not saved yet."""
        self.begun = checkpoints.latest() is not None
        """Whether there was a save: the same on all processes."""

    def asks(self) -> bool:
        """Whether this process's clock asks for a save; says so where the last one has failed."""
        return time.monotonic() - self._last_s >= self._interval_s()

    @property
    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._checkpoints.busy

    def save(self, tree: Any, step: int, notes: dict[str, Any], for_ever: bool = False) -> None:
        """Starts a save, after the one before; returns once the arrays are copied."""
        self.finish()
        self._for_ever = self._for_ever or for_ever
        self._checkpoints.save(tree, step, notes, self._for_ever)
        self._last_s, self._step, self._told = time.monotonic(), step, False
        self.begun = True

    def save_last(
        self,
        tree: Any,
        step: int,
        notes: dict[str, Any],
        for_ever: bool = False,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Saves and waits, again if need be. `EnvironmentProblem` if it cannot be done.

        `meanwhile`: called once, when the first try is on its way.
        """
        for number, wait_s in enumerate((*LAST_WAITS_S, None)):
            self.save(tree, step, notes, for_ever)
            if number == 0:
                meanwhile()
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
        latest = step
        if problem is not None:
            self._checkpoints.discard_failed()
            # All must come to the same, and one may not have been able to look.
            latest = cluster.of_first("the newest checkpoint", self._checkpoints.latest)
        if problem is None or latest == step:  # it is whole: what failed came after its commit
            self._failures, self._for_ever = 0, False
            return None
        self._failures += 1
        self.begun = latest is not None
        return EnvironmentProblem(problem)

    def _interval_s(self) -> float:
        if not self.busy and self._checkpoints.wait() is not None:
            self._tell_failure()
            return min(RETRY_S * 2 ** min(self._failures, 16), RETRY_AT_MOST_S)
        return self.schedule.interval_s(self._checkpoints.cost)

    def _tell_failure(self) -> None:
        problem = self._checkpoints.wait()
        if problem is not None and not self._told:
            line = f"process {jax.process_index()}: {problem}; it will be tried again"
            terminal.show(line, sys.stderr)
            self._told = True


def wish(full: Saver, snapshots: Saver) -> int:
    """What this process's clocks ask for."""
    if full.busy or snapshots.busy:
        return WRITING
    return FULL if full.asks() else SNAPSHOT if snapshots.asks() else NOTHING


def snapshot_of(params: Params) -> dict[str, Params]:
    """What a snapshot holds: the parameters in bfloat16, where they lie."""
    return {"params": _to_bfloat16(params)}


@jax.jit
def _to_bfloat16(params: Params) -> Params:
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
