"""What is said and done about steps that stand out.

Every process judges every step that it reads, and all come to the same: loss, gradient norm and
limits are the same numbers everywhere.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxlm.config import Config
from jaxlm.data.source import TrainRows
from jaxlm.drift import Drift
from jaxlm.errors import UserError
from jaxlm.guard import NO_LIMITS, Guard, Limits, Seen
from jaxlm.metrics import Read, Writer
from jaxlm.run import Run

WHAT = {"spike": "a spike", "not-finite": "not finite"}
DONE = {
    "warn": "",
    "skip": "; its batch is not learned from",
    "rollback": "; the run goes back",
}


class GoBack(NamedTuple):
    """The run goes back to its last full checkpoint, and does not learn from these rows."""

    event: str
    """Its name: the step, the position of its batch, and what was wrong."""
    window: tuple[int, int]
    """Positions [start, stop)."""


class Verdict(NamedTuple):
    """About a step that stands out."""

    event: dict[str, Any]
    """As in `events.jsonl`."""
    keep_evidence: bool
    back: GoBack | None = None
    problem: UserError | None = None
    """Why the run stops."""


class Judge:
    """Takes each step that is read; plain data in and out of `memory`, for a resume."""

    def __init__(self, run: Run, memory: dict[str, Any], writer: Writer):
        self._run, self._cfg, self._writer = run, run.cfg.guard, writer
        self._guard = Guard(self._cfg, memory.get("guard"))
        self._drift = Drift(memory.get("drift"))
        self._edges = edges(run.cfg, stage_starts(run))
        self._evidence: int = memory.get("evidence", 0)
        """Events that evidence was kept of."""

    @property
    def memory(self) -> dict[str, Any]:
        """What a later `Judge` goes on with."""
        return {
            "guard": self._guard.memory,
            "drift": self._drift.memory,
            "evidence": self._evidence,
        }

    def __call__(self, read: Read) -> Verdict | None:
        """Judges a step; None if it is like those before it."""
        if math.isfinite(read.loss) and math.isfinite(read.grad_norm):
            limits = self._guard.push(Seen(read.step, read.loss, read.grad_norm))
            if limits is None:
                self._watch_drift(read)
                return None
            kind, action = "spike", self._cfg.spike
        else:
            limits = self._guard.limits(read.step)
            kind, action = "not-finite", "skip"
        assert read.applied == (action != "skip"), (read, limits)
        event = self._tell(read, limits, kind, action)
        keep = self._evidence < self._cfg.max_evidence
        self._evidence += keep
        if action == "skip":
            return Verdict(event, keep, problem=self._too_many_left_out(read))
        if action != "rollback":
            return Verdict(event, keep)
        problem = self._too_many_rollbacks(read)
        if problem is not None:
            return Verdict(event, keep, problem=problem)
        return Verdict(event, keep, back=GoBack(event["event"], self._window(read)))

    def limits(self, step: int) -> Limits:
        """Above which a step is not to learn from its batch."""
        return self._guard.limits(step) if self._cfg.spike == "skip" else NO_LIMITS

    def _window(self, read: Read) -> tuple[int, int]:
        """The batch and the batches around it: what is left of the run stays whole batches."""
        skips, size = self._run.skips, self._run.cfg.train.batch_size
        first, last, end = skips.rank(np.array([*read.positions_B[[0, -1]], self._run.cfg.end]))
        margin = self._run.cfg.rows("guard.margin") // size * size
        begin = max(first - margin, first % size)
        stop = min(last + 1 + margin, end)
        start, behind = skips.at(np.array([begin, stop - 1]))
        return int(start), int(behind) + 1

    def _watch_drift(self, read: Read) -> None:
        if any(read.before < edge <= read.positions_B[-1] + 1 for edge in self._edges):
            self._drift.forget()
        shift = self._drift.push(read.step, read.loss) if self._cfg.drift else None
        if shift:
            line = (
                f"the loss of the last steps before {read.step} lies {shift.size:+.4f} off its "
                f"trend, {abs(shift.deviations):.1f} standard deviations: has the data changed?"
            )
            self._writer.event({"step": read.step, "kind": "drift", "size": shift.size}, line)

    def _tell(self, read: Read, limits: Limits, kind: str, action: str) -> dict[str, Any]:
        event = {
            # The step may come again, with another batch.
            "event": f"{read.step:08}-{read.positions_B[0]}-{kind}",
            "step": read.step,
            "before": read.before,
            "kind": kind,
            "action": action,
            "loss": read.loss,
            "grad_norm": read.grad_norm,
            "limits": limits._asdict(),
            "positions": read.positions_B.tolist(),
        }
        line = (
            f"step {read.step} is {WHAT[kind]}: loss {read.loss:.4f}, gradient norm "
            f"{read.grad_norm:.3f}; by the steps before it at most {limits.loss:.4f} and "
            f"{limits.grad_norm:.3f}{DONE[action]}"
        )
        self._writer.event(event, line)
        return event

    def _too_many_left_out(self, read: Read) -> UserError | None:
        most, left_out = self._cfg.max_skipped, self._guard.leave_out(read.step)
        if left_out <= most:
            return None
        return UserError(
            f"step {read.step} has loss {read.loss:.4f} and gradient norm {read.grad_norm:.3f}: "
            f"{left_out} of the last {self._cfg.window} batches were not learned from, and "
            f"config.guard.max_skipped={most}. Look at the batches (jaxlm replay), lower "
            "config.optim.lr or clip_norm, or allow more"
        )

    def _too_many_rollbacks(self, read: Read) -> UserError | None:
        most, done = self._cfg.max_rollbacks, len(set(self._run.skips.events) - {None})
        if done < most:
            return None
        return UserError(
            f"step {read.step} is a spike, and the run has gone back {done} times already: "
            f"config.guard.max_rollbacks={most}. Look at the batches (jaxlm replay), lower "
            "config.optim.lr, or allow more"
        )


def edges(cfg: Config, stages: Iterable[int]) -> tuple[int, ...]:
    """Positions at which the loss changes its course on purpose."""
    warmup, decay = cfg.rows("optim.warmup"), cfg.rows("optim.decay")
    phases = (start for start, _ in cfg.dropout_phases())
    return tuple(sorted({warmup, cfg.end - decay, *phases, *stages} - {0, cfg.end}))


def stage_starts(run: Run) -> tuple[int, ...]:
    """Of the mixture's stages."""
    train = run.corpus.train
    return train.order.stage_starts if isinstance(train, TrainRows) else ()
