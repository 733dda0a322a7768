"""Small lasting shifts of a loss, seen against its own trend.

A loader that has begun to repeat itself, a mask that is gone, a corrupt shard: the loss moves by
0.01 and stays there, far below the noise of one step. The mean of the newest steps is compared with
a line through the steps before them, straight over the logarithm of the step: loss curves bend, but
hardly so there. Means are taken over blocks, so that neighbouring steps that resemble each other
are not counted as independent.

With noise of standard deviation 0.02 a step, a shift of 0.01 is flagged within 500 steps 97 times
in 100, at less than one false alarm in 100,000 steps (`tests/test_drift.py` measures both).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

BLOCK = 25
"""Steps."""
TREND, RECENT = 80, 12
"""Blocks of the line, and of the mean that is held against it: 2,000 and 300 steps."""
LIMIT = 4.3
"""Standard deviations of the difference."""
OUTLIER = 4.0
"""Standard deviations at which a step's distance from the median of its block is cut off."""


class Shift(NamedTuple):
    """A loss that has left its trend."""

    step: int
    size: float
    """Mean of the newest steps above the trend; nats."""
    deviations: float
    """The same in standard deviations of what chance would do."""


type Memory = dict[str, Sequence[Any]]


class Drift:
    """Takes the loss of each step; plain data in and out of `memory`, for a resume."""

    def __init__(self, memory: Memory | None = None):
        memory = memory or {}
        self._blocks = list(memory.get("blocks", ()))
        """(last step, mean), oldest first."""
        self._open = list(memory.get("open", ()))
        """Losses of the block that is not full yet."""

    @property
    def memory(self) -> Memory:
        """What a later `Drift` goes on with."""
        return {"blocks": self._blocks, "open": list(self._open)}

    def forget(self) -> None:
        """Starts anew: the data, the schedule or the model's noise has changed on purpose."""
        self._blocks, self._open = [], []

    def push(self, step: int, loss: float) -> Shift | None:
        """A finite loss of a step, from 1 on; the shift that it completes, after which the trend is
        begun anew."""
        self._open.append(loss)
        if len(self._open) < BLOCK:
            return None
        self._blocks = [*self._blocks, [step, _mean(self._open)]][-(TREND + RECENT) :]
        self._open = []
        if len(self._blocks) < TREND + RECENT:
            return None
        size, deviations = against_trend(np.array(self._blocks))
        if abs(deviations) < LIMIT:
            return None
        self.forget()
        return Shift(step, size, deviations)


def against_trend(blocks: np.ndarray) -> tuple[float, float]:
    """How far the newest `RECENT` means lie above the line through the `TREND` before them.

    `blocks`: (step, mean) of each. In nats, and in standard deviations: of the mean and of the
    line's prediction together.
    """
    x, means = np.log(blocks[:, 0]), blocks[:, 1]
    x -= x[:TREND].mean()
    line, newest = slice(0, TREND), slice(TREND, None)
    spread = (x[line] ** 2).sum()
    level, slope = means[line].mean(), (x[line] * means[line]).sum() / spread
    residuals = means[line] - level - slope * x[line]
    noise = np.sqrt((residuals**2).sum() / (TREND - 2))
    ahead = x[newest].mean()
    size = float(means[newest].mean() - level - slope * ahead)
    error = noise * np.sqrt(1 / TREND + 1 / RECENT + ahead**2 / spread)
    return size, size / max(float(error), 1e-12)


def _mean(losses: Sequence[float]) -> float:
    """Without the pull of single steps far off."""
    values = np.array(losses)
    middle = np.median(values)
    far = OUTLIER * 1.4826 * np.median(np.abs(values - middle))
    return float(np.clip(values, middle - far, middle + far).mean())
