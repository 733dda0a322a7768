"""Going back from a spike: to the last full checkpoint before it, and on without its rows.

In this order, each step done on disk before the next begins, so that a run that is killed between
any two resumes right:

1. The rows are written to `skips.json`. From here on a resume trains without them,
2. and checkpoints that have learned from them are moved to `abandoned/EVENT/`: now, or at the start
   of the next process, whichever comes first.
3. The newest checkpoint that is left is restored.
"""

from collections.abc import Iterator
from dataclasses import replace

import jax
from etils import epath

from jaxlm import checkpoint, cluster, site, terminal, workdir
from jaxlm.checkpoint import Checkpoints
from jaxlm.data import skips
from jaxlm.data.skips import Skips
from jaxlm.integrity import CheckpointError
from jaxlm.judge import GoBack
from jaxlm.run import Run


def go_back(run: Run, back: GoBack) -> Run:
    """The run as it is after steps 1 and 2; all processes call it."""
    run.checkpoints.wait()
    run.snapshots.wait()
    checkpoint.abandon_unfinished(run.workdir)
    found = run.skips.with_event(*back.window, back.event)
    if jax.process_index() == 0:
        skips.save(run.workdir, found)
        site.send(run.workdir)
    cluster.gather(f"{skips.FILE} is written", True)
    run = replace(run, skips=found)
    abandon_overtaken(run)
    return run


def abandon_overtaken(run: Run) -> None:
    """Moves away all checkpoints that have learned from rows that an event has since excluded."""
    if not any(run.skips.events):
        return
    overtaken = [*_overtaken(run.checkpoints, run.skips), *_overtaken(run.snapshots, run.skips)]
    if jax.process_index() == 0 and overtaken:
        moved = {path for path, _ in overtaken}
        left = [s for s in run.checkpoints.steps() if run.checkpoints.path(s) not in moved]
        workdir.write_saved(run.workdir, max(left, default=None))  # or they would be missed
        site.send(run.workdir)
        for path, event in overtaken:
            target = checkpoint.abandon(run.workdir, path, event)
            terminal.show(f"{path}: has learned from {event}; moved to {target}")
    cluster.gather("overtaken checkpoints are moved", True, cluster.restore_s())
    run.checkpoints.reload()
    run.snapshots.reload()


def _overtaken(checkpoints: Checkpoints, now: Skips) -> Iterator[tuple[epath.Path, str]]:
    for step in checkpoints.steps():
        try:
            notes = checkpoints.notes(step)
        except CheckpointError:
            continue  # it is damaged; whoever comes to it says so
        event = now.overtaken(Skips(notes["skips"]), notes["position"])
        if event is not None:
            yield checkpoints.path(step), event
