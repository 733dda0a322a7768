"""Steps whose loss or gradient stands out: what counts as a spike, and what is done about it.

The loss and the gradient norm of a step are held against the median of the steps before it, in
robust standard deviations. A step is judged by those up to the last but one before it, whether or
not the host has read more: so the judgement is the same in a run that was interrupted. Where the
loss changes on purpose, at an edge, what came before is no measure of what comes after.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
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
    first: int = -1
    """Position of its first row; -1 in what an earlier version has written."""


NO_LIMITS = Limits(math.inf, math.inf)


class Guard:
    """Takes each step that is read; plain data in and out of `memory`, for a resume."""

    def __init__(
        self, cfg: GuardConfig, edges: Sequence[int] = (), memory: Mapping[str, Any] | None = None
    ):
        """`edges`: positions from which on the loss is another."""
        memory = memory or {"seen": (), "left_out": ()}
        self._cfg, self._edges = cfg, edges
        self._seen = deque((Seen(*entry) for entry in memory["seen"]), maxlen=cfg.window + LAG)
        self._left_out: list[int] = list(memory["left_out"])
        """Steps whose batch was not learned from."""

    @property
    def memory(self) -> dict[str, Any]:
        """What a later `Guard` goes on with."""
        return {"seen": [list(seen) for seen in self._seen], "left_out": self._left_out}

    def limits(self, step: int, last: int) -> Limits:
        """What a step may reach whose last row is at position `last`; no limits before a window is
        full, of steps behind the newest edge.

        The first steps of a run are no measure: in the demo, gradient norms leapt fourfold.
        """
        edge = max((edge for edge in self._edges if edge <= last), default=-1)
        known = [s for s in self._seen if s.step <= step - LAG and s.first >= edge]
        known = known[-self._cfg.window :]
        if self._cfg.spike == "off" or len(known) < self._cfg.window:
            return NO_LIMITS
        values = np.array([(seen.loss, seen.grad_norm) for seen in known])
        middle = np.median(values, axis=0)
        spread = 1.4826 * np.median(np.abs(values - middle), axis=0)
        spread = np.maximum(spread, np.array(FLOOR) * np.abs(middle))
        above = middle + self._cfg.deviations * spread
        loss, grad_norm = above.astype(np.float32).tolist()  # as the step compares
        return Limits(loss, grad_norm)

    def allowed(self, step: int, last: int) -> Limits:
        """Above which a step is not to learn from its batch."""
        return self.limits(step, last) if self._cfg.spike == "skip" else NO_LIMITS

    def push(self, seen: Seen, last: int) -> Limits | None:
        """Takes a finite step that was read; the limits, if it is above one of them."""
        limits = self.limits(seen.step, last)
        self._seen.append(seen)
        above = seen.loss > limits.loss or seen.grad_norm > limits.grad_norm
        return limits if above else None

    def leave_out(self, step: int) -> int:
        """Takes a step whose batch was not learned from; how many of the last were not."""
        recent = (other for other in self._left_out if other > step - self._cfg.window)
        self._left_out = [*recent, step]
        return len(self._left_out)
