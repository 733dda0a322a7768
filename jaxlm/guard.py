"""Steps whose loss or gradient stands out: what counts as a spike, and what is done about it.

The loss and the gradient norm of a step are held against the median of the steps before it, in
robust standard deviations. A step is judged by those up to the last but one before it, whether or
not the host has read more: so the judgement is the same in a run that was interrupted.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxlm.safety import GuardConfig

LAG = 2
"""A step is dispatched when the one before it has not been read."""
FLOOR = (0.005, 0.3)
"""Least robust standard deviations of loss and gradient norm, as a share of the median. The norm of
a small batch has long tails: half again as much as usual is no news (seen in the demo)."""


class Limits(NamedTuple):
    """Above them a step stands out."""

    loss: float
    grad_norm: float


class Seen(NamedTuple):
    """A step that has been read."""

    step: int
    loss: float
    grad_norm: float


NO_LIMITS = Limits(math.inf, math.inf)


class Guard:
    """Takes each step that is read; plain data in and out of `memory`, for a resume."""

    def __init__(self, cfg: GuardConfig, memory: Mapping[str, Any] | None = None):
        memory = memory or {"seen": (), "left_out": ()}
        self._cfg = cfg
        self._seen = deque((Seen(*entry) for entry in memory["seen"]), maxlen=cfg.window + LAG)
        self._left_out: list[int] = list(memory["left_out"])
        """Steps whose batch was not learned from."""

    @property
    def memory(self) -> dict[str, Any]:
        """What a later `Guard` goes on with."""
        return {"seen": [list(seen) for seen in self._seen], "left_out": self._left_out}

    def limits(self, step: int) -> Limits:
        """What a step may reach; no limits before the first window is full.

        The first steps of a run are no measure: in the demo, gradient norms leapt fourfold.
        """
        known = [seen for seen in self._seen if seen.step <= step - LAG][-self._cfg.window :]
        if self._cfg.spike == "off" or len(known) < self._cfg.window:
            return NO_LIMITS
        values = np.array([(seen.loss, seen.grad_norm) for seen in known])
        middle = np.median(values, axis=0)
        spread = 1.4826 * np.median(np.abs(values - middle), axis=0)
        spread = np.maximum(spread, np.array(FLOOR) * np.abs(middle))
        above = middle + self._cfg.deviations * spread
        loss, grad_norm = above.astype(np.float32).tolist()  # as the step compares
        return Limits(loss, grad_norm)

    def push(self, seen: Seen) -> Limits | None:
        """Takes a finite step that was read; the limits, if it is above one of them."""
        limits = self.limits(seen.step)
        self._seen.append(seen)
        above = seen.loss > limits.loss or seen.grad_norm > limits.grad_norm
        return limits if above else None

    def leave_out(self, step: int) -> int:
        """Takes a step whose batch was not learned from; how many of the last were not."""
        recent = (other for other in self._left_out if other > step - self._cfg.window)
        self._left_out = [*recent, step]
        return len(self._left_out)
