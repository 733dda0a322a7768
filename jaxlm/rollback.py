"""Going back from a spike: to the last full checkpoint before it, and on without its rows.

In this order, each step done on disk before the next begins, so that a run that is killed between
any two resumes right:

1. The rows are written to `skips.json`. From here on a resume trains without them,
2. and checkpoints that have learned from them are moved to `abandoned/EVENT/`: now, or at the start
   of the next process, whichever comes first.
3. The newest checkpoint that is left is restored.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from jaxlm import checkpoint, cluster, site, terminal, workdir
from jaxlm.checkpoint import Checkpoints
from jaxlm.config import Config
from jaxlm.data import skips
from jaxlm.data.skips import Skips
from jaxlm.errors import UserError
from jaxlm.integrity import CheckpointError
from jaxlm.judge import GoBack
from jaxlm.run import Run
from jaxlm.schema import ConfigError


class Kept(NamedTuple):
    """A checkpoint or snapshot that is there."""

    path: epath.Path
    step: int
    position: int
    skips: Skips
    """Rows that it was not trained on."""

    def overtaken(self, now: Skips) -> str | None:
        """The event whose rows it has learned from, if there is one."""
        return now.overtaken(self.skips, self.position)


def check_margin(cfg: Config) -> None:
    """`ConfigError` if checkpoints that come by the position may not reach over `guard.margin`."""
    guard, saves = cfg.guard, cfg.checkpoint
    if guard.spike != "rollback" or saves.every is None or saves.keep_every or saves.at:
        return
    reach = (saves.keep - 1) * cfg.rows("checkpoint.every")
    if cfg.rows("guard.margin") > reach:
        raise ConfigError(
            f"config.guard.margin={guard.margin!r} is {cfg.rows('guard.margin')} rows, but "
            f"checkpoint.every={saves.every!r} and keep={saves.keep} reach back only {reach} at "
            "times: a run could find no checkpoint to go back to. Lower the margin, or keep more"
        )


def go_back(run: Run, back: GoBack) -> Run:
    """The run as it is after steps 1 and 2; all processes call it.

    `UserError` if no checkpoint would be left to go back to; nothing is changed then.
    """
    run.checkpoints.wait()
    run.snapshots.wait()
    checkpoint.clear_unfinished(run.workdir, workdir.saved(run.workdir))
    found = _without(run, back)
    if jax.process_index() == 0:
        skips.save(run.workdir, found)
        site.send(run.workdir)
    cluster.gather(f"{skips.FILE} is written", True)
    run = replace(run, skips=found)
    abandon_overtaken(run)
    return run


def abandon_overtaken(run: Run) -> None:
    """Moves away all checkpoints that have learned from rows that an event has since excluded.

    `UserError` if those are all; nothing is moved then.
    """
    if not any(run.skips.events):
        return
    full = _kept(run.checkpoints)
    origin = _origin(run, full, run.skips)
    moving = [
        (kept, event)
        for kept in [*full, *_kept(run.snapshots)]
        if (event := kept.overtaken(run.skips)) is not None
    ]
    if jax.process_index() == 0 and moving:
        moved = {kept.path for kept, _ in moving}
        left = [s for s in run.checkpoints.steps() if run.checkpoints.path(s) not in moved]
        step, position = (origin.step, origin.position) if origin else (0, 0)
        saved = max(left, default=None)  # or they would be missed
        workdir.write_status(run.workdir, "training", step, position, run.cfg.end, saved)
        site.send(run.workdir)
        for kept, event in moving:
            target = checkpoint.abandon(run.workdir, kept.path, event)
            terminal.show(f"{kept.path}: has learned from {event}; moved to {target}")
    cluster.gather("overtaken checkpoints are moved", True, cluster.restore_s())
    run.checkpoints.reload()
    run.snapshots.reload()


def _without(run: Run, back: GoBack) -> Skips:
    """The run's windows and that of the event.

    It begins so many rows earlier that what is left behind the checkpoint is whole batches: the
    checkpoint may be from before a change of the batch size.
    """
    full, (start, stop) = _kept(run.checkpoints), back.window
    while True:
        found = run.skips.with_event(start, stop, back.event)
        origin = _origin(run, full, found)
        position = origin.position if origin else 0
        over = found.count(position, run.cfg.end) % run.cfg.train.batch_size
        rank = int(run.skips.rank(np.array([start]))[0]) - over
        if not over or rank < 0:  # a start says what is wrong
            return found
        start = int(run.skips.at(np.array([rank]))[0])


def _origin(run: Run, full: list[Kept], now: Skips) -> Kept | None:
    """The checkpoint to go back to; None in a run that has none yet, which begins anew."""
    left = [kept for kept in full if kept.overtaken(now) is None]
    if full and not left:
        c, steps = run.cfg.checkpoint, ", ".join(str(kept.step) for kept in full)
        raise UserError(
            f"{run.checkpoints.path(full[0].step).parent}: all checkpoints (steps {steps}) have "
            f"learned from rows of {full[0].overtaken(now)} that are to be jumped over, and none "
            "would be left to go back to. With "
            f"config.guard.margin={run.cfg.guard.margin!r}, config.checkpoint.every={c.every!r}, "
            f"every_minutes={c.every_minutes!r} and keep={c.keep} they do not reach so far back: "
            'lower the margin, keep more, or set config.guard.spike="skip" or "warn"'
        )
    return max(left, key=lambda kept: kept.step, default=None)


def _kept(checkpoints: Checkpoints) -> list[Kept]:
    """Newest first, the same on all processes, as process 0 sees them."""
    found = []
    for step in cluster.of_first("checkpoints that are there", checkpoints.steps)[::-1]:
        try:
            notes = checkpoints.notes(step)
        except CheckpointError:
            continue  # it is damaged; whoever comes to it says so
        path = checkpoints.path(step)
        found.append(Kept(path, step, notes["position"], Skips(notes["skips"])))
    return found
