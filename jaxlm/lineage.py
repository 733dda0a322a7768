"""Step <-> row of the order, for what has survived of a run.

A start at a step takes the place of all that earlier starts did from that step on. What is left are
segments of steps with one batch size each; counted without the rows that are skipped, each begins
where the one before it ends.
"""

from collections.abc import Sequence

import numpy as np

from jaxlm.data.skips import Skips
from jaxlm.errors import UserError
from jaxlm.workdir import Start


class Lineage:
    """Steps are counted from 1, rows of a batch from 0. Arrays in, arrays out: int64[N]."""

    def __init__(self, starts: Sequence[Start]):
        """`starts`: `workdir.history`. The last segment has no end.

        `UserError` if there are none, or if they do not fit each other.
        """
        kept: list[Start] = []
        for start in starts:
            while kept and kept[-1].step >= start.step:
                kept.pop()
            kept.append(start)
        if not kept:
            raise UserError("history.jsonl: no start is there; has a run started?")
        # A start can skip no rows that were trained on, nor take back those that were skipped: so
        # the windows of the newest one hold for all that survives.
        self.skips = Skips(starts[-1].skips)
        self._steps = np.array([s.step for s in kept], np.int64)
        self._sizes = np.array([s.batch_size for s in kept], np.int64)
        self._ranks = self.skips.rank(np.array([s.position for s in kept], np.int64))
        ends = self._ranks[:-1] + np.diff(self._steps) * self._sizes[:-1]
        for i in np.flatnonzero(ends != self._ranks[1:]).tolist():
            raise UserError(
                f"history.jsonl: the start at step {kept[i + 1].step} is at row "
                f"{kept[i + 1].position}, but the one at step {kept[i].step} leads to row "
                f"{self.skips.at(ends[i : i + 1])[0]} there: a line is missing or was changed"
            )

    def batch_sizes(self, steps: np.ndarray) -> np.ndarray:
        """Rows in the batch of each step. `UserError` for a step before the run's first."""
        return self._sizes[self._segments(steps)]

    def positions(self, steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Where these rows of the batches of these steps lie in the order."""
        at = self._segments(steps)
        ranks = self._ranks[at] + (steps - 1 - self._steps[at]) * self._sizes[at] + rows
        return self.skips.at(ranks)

    def batch(self, step: int) -> np.ndarray:
        """The positions of a step's batch."""
        steps = np.array([step])
        rows = np.arange(self.batch_sizes(steps)[0])
        return self.positions(steps.repeat(len(rows)), rows)

    def steps(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(step, row in its batch) that reads each position.

        (0, -1) where none does: it is skipped, or lies before the run's first row.
        """
        ranks = self.skips.rank(positions)
        at = np.searchsorted(self._ranks, ranks, side="right") - 1
        batches, rows = np.divmod(ranks - self._ranks[at], self._sizes[at])
        read = (at >= 0) & ~self.skips.holds(positions)
        return np.where(read, self._steps[at] + batches + 1, 0), np.where(read, rows, -1)

    def _segments(self, steps: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self._steps, steps, side="left") - 1
        if at.size and at.min() < 0:
            raise UserError(
                f"step {steps.min()}: the first step in history.jsonl is {self._steps[0] + 1}"
            )
        return at
