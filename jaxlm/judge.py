"""What is said and done about steps that stand out.

Every process judges every step that it reads, and all come to the same: loss, gradient norm and
limits are the same numbers everywhere.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from jaxlm import cluster, workdir
from jaxlm.data import fingerprint
from jaxlm.data.source import TrainRows
from jaxlm.drift import Drift
from jaxlm.errors import UserError
from jaxlm.guard import Guard, Limits, Seen
from jaxlm.metrics import Read, Writer
from jaxlm.run import Opened, Run

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
    """As in `events.jsonl`, and `skips`: the windows that the run jumped over."""
    keep_evidence: bool
    back: GoBack | None = None
    problem: UserError | None = None
    """Why the run stops."""


class Judge:
    """Takes each step that is read; plain data in and out of `memory`, for a resume."""

    def __init__(self, run: Run, memory: dict[str, Any], writer: Writer):
        self._run, self._cfg, self._writer = run, run.cfg.guard, writer
        memory = recalled(run, memory)
        self._guard = Guard(self._cfg, jumps(run), memory.get("guard"))
        self._drift = Drift(memory.get("drift"))
        self._edges = edges(run)
        kept = cluster.of_first("events kept so far", lambda: workdir.kept_events(run.workdir))
        self._kept = set(kept)
        """Events that evidence is kept of: such a one may come again."""

    @property
    def memory(self) -> dict[str, Any]:
        """What a later `Judge` goes on with."""
        return {
            "guard": self._guard.memory,
            "drift": self._drift.memory,
            "measure": measure(self._run),
        }

    def __call__(self, read: Read) -> Verdict | None:
        """Judges a step; None if it is like those before it."""
        first, last = read.positions_B[[0, -1]].tolist()
        if math.isfinite(read.loss) and math.isfinite(read.grad_norm):
            limits = self._guard.push(Seen(read.step, read.loss, read.grad_norm, first), last)
            if limits is None:
                self._watch_drift(read)
                return None
            kind, action = "spike", self._cfg.spike
        else:
            limits = self._guard.limits(read.step, last)
            kind, action = "not-finite", "skip"
        assert read.applied == (action != "skip"), (read, limits)
        event = self._tell(read, limits, kind, action)
        keep = event["event"] in self._kept or len(self._kept) < self._cfg.max_evidence
        self._kept |= {event["event"]} if keep else set()
        if action == "skip":
            return Verdict(event, keep, problem=self._too_many_left_out(read))
        if action != "rollback":
            return Verdict(event, keep)
        problem = self._too_many_rollbacks(read)
        if problem is not None:
            return Verdict(event, keep, problem=problem)
        return Verdict(event, keep, back=GoBack(event["event"], self._window(read)))

    def limits(self, step: int, positions_B: np.ndarray) -> Limits:
        """Above which a step is not to learn from its batch, the rows at these positions."""
        return self._guard.allowed(step, int(positions_B[-1]))

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
        return {**event, "skips": self._run.skips.entries}

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


def jumps(run: Opened) -> tuple[int, ...]:
    """Positions from which on the loss is another on purpose: mixture stages, dropout phases."""
    train = run.corpus.train
    stages = train.order.stage_starts if isinstance(train, TrainRows) else ()
    return tuple(sorted({*stages, *(start for start, _ in run.cfg.dropout_phases())} - {0}))


def edges(run: Opened) -> tuple[int, ...]:
    """Positions at which the loss changes its course on purpose."""
    cfg = run.cfg
    warmup, decay = cfg.rows("optim.warmup"), cfg.rows("optim.decay")
    return tuple(sorted({warmup, cfg.end - decay, *jumps(run)} - {0, cfg.end}))


def measure(run: Opened) -> str:
    """Stands for what a run's losses and gradients are of: such of another are not held against
    them."""
    return fingerprint.digest(
        {
            "data": run.corpus.train.fingerprint(),
            "batch_size": run.cfg.train.batch_size,
            "dropout": run.cfg.dropout_phases(),
            "z_loss": run.cfg.loss.z_loss,
        }
    )


def recalled(run: Opened, memory: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint remembers, less the steps before a change of the config that made theirs
    another measure."""
    if not memory or memory.get("measure") in (None, measure(run)):
        return memory  # None: of an earlier version
    return {**memory, "guard": {**memory["guard"], "seen": ()}, "drift": None}
