"""Checkpoints, full ones and snapshots: written by Orbax in the background, with our own checksums.

A save that fails is an outcome, not an exception: the run goes on, and `saving.Saver` tries again.
"""

import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies
from orbax.checkpoint._src.multihost import multihost
from orbax.checkpoint.options import AsyncOptions, AtomicityMode, AtomicityOptions

from jaxlm import cluster, integrity, storage, stored_arrays, vote
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.integrity import CheckpointError
from jaxlm.models.transformer import Params
from jaxlm.schedule import Cost
from jaxlm.site import Workdir
from jaxlm.state import TrainState
from jaxlm.vote import CalledOff, Vote
from jaxlm.workdir import MARKER

FOR_EVER = "for_ever.txt"
"""A checkpoint with this file is never deleted."""
NOTES = "notes"
STATE = "state"


class Keep(NamedTuple):
    """Which checkpoints are kept, besides those marked for ever."""

    newest: int
    every: int | None = None
    """Those of steps that are multiples of it."""


class Checkpoints:
    """Checkpoints of one kind, each in `directory/<step>`."""

    def __init__(
        self,
        directory: epath.PathLike,
        keep: Keep,
        read_only: bool = False,
        before_commit: Callable[[], None] = lambda: None,
    ):
        """`directory`: a path or a URL. `before_commit`: called by process 0 when all is written.

        What it raises fails the save.
        """
        _say_failures_once()
        self._directory = epath.Path(directory)
        if storage.is_url(str(directory)):
            stored_arrays.prepare()
        self._before = before_commit
        self._saving: _Save | None = None
        self._remains: set[int] = set()
        """Steps of saves that failed, until what they have left is gone."""
        self._stale = False
        """Whether Orbax has to look again at what is there."""
        self.cost: Cost | None = None
        """Of the last save that ended well."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jaxlm-save")
        self._kept = _Kept(keep)
        if read_only and not self._directory.is_dir():
            raise CheckpointError(f"{self._directory}: no checkpoints there; has a run started?")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self._kept,
                save_decision_policy=policies.FixedIntervalPolicy(1),
                atomicity_options=AtomicityOptions(mode=AtomicityMode.COMMIT_FILE),
                create=not read_only and jax.process_count() == 1,
                async_options=AsyncOptions(
                    timeout_secs=cluster.save_s(),
                    barrier_sync_fn=self._in_step,
                    post_finalization_callback=self._before_commit,
                ),
                multiprocessing_options=_barriers(self._directory.name),
            ),
        )
        self._read_only = read_only
        self._find_for_ever()

    def latest(self) -> int | None:
        """Step of the newest committed checkpoint."""
        return max(self.steps(), default=None)

    def steps(self) -> list[int]:
        """Of all committed checkpoints, in order."""
        found, save = {*self._manager.all_steps()} - self._remains, self._saving
        # Orbax counts a save from its start on, and not one that is whole but failed after that.
        if save is not None:
            found = found | {save.step} if save.is_whole else found - {save.step}
        return sorted(found)

    def path(self, step: int) -> epath.Path:
        """Where the checkpoint of a step lies."""
        return self._directory / str(step)

    # ---- writing ---------------------------------------------------------------------------------

    def save(self, tree: Any, step: int, notes: dict[str, Any], for_ever: bool = False) -> None:
        """Starts a save, after the one before; returns once the arrays are copied.

        What goes wrong, now or later, is for `wait` to say.
        """
        self.wait()
        start_s = time.monotonic()
        self._saving = save = _Save(step, for_ever)
        if not self._ready(save):
            return
        if for_ever:
            self._kept.for_ever.add(step)
        args = ocp.args.Composite(
            **{STATE: ocp.args.PyTreeSave(tree), NOTES: ocp.args.JsonSave(notes)}
        )
        try:
            if not self._manager.save(step, args=args):
                raise CheckpointError(
                    f"Orbax declined to save step {step}; the newest checkpoint is step "
                    f"{self.latest()}: was this directory used by another run?"
                )
        except Exception as e:
            save.errors.append(e)
        save.ended = self._thread.submit(self._end, save, start_s, time.monotonic())

    @property
    def busy(self) -> bool:
        """Whether a save of this process is still on its way."""
        return self._saving is not None and not self._saving.is_over

    def wait(self) -> EnvironmentProblem | None:
        """Waits for the save on its way, if there is one; what went wrong in the last one."""
        if self._saving is None or self._saving.ended is None:
            return None
        self._saving.ended.result()
        if not self._saving.errors:
            return None
        return EnvironmentProblem(
            f"{self.path(self._saving.step)}: the checkpoint could not be saved "
            f"({_words(self._saving.errors[0])}). The ones before it are whole: see that there is "
            "room, and that it can be written"
        )

    def discard_failed(self) -> bool:
        """After a save that failed on some process; on all, when all have ended.

        False if it is whole: what failed came after its marker. Else what it has left is deleted,
        for its room; where that cannot be done now, the next save begins with it.
        """
        assert self._saving is not None and not self.busy
        step, self._stale = self._saving.step, True
        if cluster.of_first(f"whether step {step} is whole", lambda: self._is_marked(step)):
            self._saving.errors.clear()
            return False
        self._remains.add(step)
        if jax.process_index() == 0:
            with contextlib.suppress(Exception):
                self._remove_unfinished(step)
        return True

    def _is_marked(self, step: int) -> bool:
        """Whether its marker is there, and can be seen."""
        with contextlib.suppress(Exception):
            return is_there(self.path(step) / MARKER)
        return False

    def _remove_unfinished(self, step: int) -> None:
        path = self.path(step)
        if path.exists() and not is_there(path / MARKER):
            path.rmtree()

    def close(self) -> None:
        """Waits, and gives the threads back."""
        self.wait()
        self._thread.shutdown()
        self._forget_error()
        self._manager.close()

    def _forget_error(self) -> None:
        """Orbax raises what went wrong in a save once in each thread that asks."""
        with contextlib.suppress(Exception):
            self._manager.wait_until_finished()

    def _ready(self, save: "_Save") -> bool:
        """Whether a save can begin on all processes; if not, it has failed on all.

        Orbax has them wait for each other while it begins one, until a barrier gives up.
        """
        try:
            if jax.process_index() == 0:
                for step in {save.step, *self._remains}:
                    self._remove_unfinished(step)
            if self._stale:  # Orbax would not delete what it thought to be replaced
                self.reload()
            probe = self._directory / f".probe-{jax.process_index()}"
            probe.write_bytes(b"probe")
            probe.unlink()
            mine = None
        except Exception as e:
            mine = e
            save.errors.append(e)
        problems = cluster.gather(f"step {save.step} can be saved", mine and str(mine))
        failed = [f"{cluster.name(i)}: {problem}" for i, problem in enumerate(problems) if problem]
        if failed and mine is None:
            save.errors.append(CalledOff("; ".join(failed)))
        if failed:
            save.ended = Future()
            save.ended.set_result(None)
        return not failed

    def _end(self, save: "_Save", start_s: float, started_s: float) -> None:
        # Where the start of the save failed half-way, the second has a thread and the first none.
        for wait in (self._manager.wait_until_finished, self._manager._wait_for_checkpointers):
            try:
                wait()
            except Exception as e:
                save.errors.append(e)
        if save.errors and jax.process_index() == 0 and self._is_marked(save.step):
            self._say_old_stays(save.errors[0])
            save.errors.clear()
        if not save.errors:
            self.cost = Cost(started_s - start_s, time.monotonic() - started_s)
            return
        try:
            save.vote.fail(cluster.save_s())
        except Exception as e:
            save.errors.append(e)

    def _say_old_stays(self, error: Exception) -> None:
        """Of a save that is whole: what failed was to delete an old one, which is let be now."""
        self._stale = True
        with contextlib.suppress(Exception):
            step = next(step for step in self._kept.going if self.path(step).exists())
            self._kept.stuck.add(step)
            line = (
                f"{self.path(step)}: an old checkpoint, could not be deleted ({_words(error)}). "
                "The newer ones are whole; delete it by hand, or let this user do so"
            )
            print(line, file=sys.stderr, flush=True)

    def _in_step(self, *, key: str, timeout_ms: int) -> None:
        """Orbax's barriers in the background."""
        save = self._saving
        if save is not None:
            if vote.WRITTEN in key and jax.process_count() > 1:
                mine = f"{STATE}/ocdbt.process_{jax.process_index()}"
                save.vote.leave(integrity.sums(self.path(save.step), mine))
            save.vote(key=key, timeout_ms=timeout_ms)

    def _before_commit(self) -> None:
        """Called by Orbax when all files are there, before the commit marker is.

        Orbax only logs what a callback raises, so it is kept for `wait`.
        """
        save = self._saving  # no other begins before the thread that calls this has ended: `_end`
        assert save is not None
        if jax.process_index() != 0:
            return
        try:
            if save.for_ever:
                (self.path(save.step) / FOR_EVER).write_text("")
            shares = save.vote.left() if jax.process_count() > 1 else []
            known = {name: found for share in shares for name, found in share.items()}
            integrity.write(self.path(save.step), known)
            self._before()
        except Exception as e:
            save.errors.append(e)
            raise

    # ---- reading ---------------------------------------------------------------------------------

    def verify(self, step: int) -> None:
        """`integrity.Damaged` if a file of this step is; every process raises it."""
        integrity.verify(self.path(step))

    def notes(self, step: int) -> dict[str, Any]:
        """What was written beside the arrays: `run.notes`."""
        with _readable(self.path(step)):
            restored = self._manager.restore(
                step, args=ocp.args.Composite(**{NOTES: ocp.args.JsonRestore()})
            )
            return restored[NOTES]

    def restore(self, step: int, template: TrainState) -> TrainState:
        """The state of a step, placed as `template` says; `verify` it first."""
        return self._restore(step, template, partial=False)

    def restore_params(self, step: int, template: Params) -> Params:
        """The parameters of a step alone: a third of the bytes of its state."""
        return self._restore(step, {"params": template}, partial=True)["params"]

    def _restore(self, step: int, template: Any, partial: bool) -> Any:
        with _readable(self.path(step)):
            args = ocp.args.PyTreeRestore(
                item=template,
                restore_args=ocp.checkpoint_utils.construct_restore_args(template),
                partial_restore=partial,
            )
            found = self._manager.restore(step, args=ocp.args.Composite(**{STATE: args}))[STATE]
            for path, leaf in jax.tree.leaves_with_path(found):
                if isinstance(leaf, jax.ShapeDtypeStruct):  # Orbax leaves out what it does not find
                    raise ValueError(f"has no {jax.tree_util.keystr(path)}")
            return found

    def reload(self) -> None:
        """Looks again at what is there, after checkpoints were moved."""
        self._forget_error()
        self._manager.reload()
        self._find_for_ever()
        self._remains.clear()
        self._stale = False

    def _find_for_ever(self) -> None:
        if not self._read_only:
            found = {s for s in self._manager.all_steps() if is_there(self.path(s) / FOR_EVER)}
            self._kept.for_ever = found


class _Save:
    """A save, from its start on."""

    def __init__(self, step: int, for_ever: bool):
        self.step, self.for_ever = step, for_ever
        self.vote = Vote()
        self.errors: list[Exception] = []
        self.ended: Future[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.ended is not None and self.ended.done()

    @property
    def is_whole(self) -> bool:
        """Whether its commit marker is there."""
        return self.is_over and not self.errors


class _Kept:
    """Orbax's policy: which checkpoints stay. It is asked when a save is on its way already.

    So it knows by itself: a file that cannot be looked for then would leave the others waiting.
    """

    def __init__(self, keep: Keep):
        self._keep = keep
        self.for_ever: set[int] = set()
        """Steps that are marked, or will be."""
        self.stuck: set[int] = set()
        """Those that cannot be deleted: at the first one Orbax would stop, each time."""
        self.going: list[int] = []
        """Those that do not stay, oldest first, of the last that were asked about."""

    def should_preserve(
        self, checkpoints: Sequence[policies.PolicyCheckpointInfo], *, context: Any
    ) -> list[bool]:
        steps, every = [c.step for c in checkpoints], self._keep.every
        stay = {*steps[-self._keep.newest :], *self.for_ever, *self.stuck}
        kept = [step in stay or (every is not None and step % every == 0) for step in steps]
        self.going = [step for step, stays in zip(steps, kept, strict=True) if not stays]
        return kept


def _words(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if isinstance(error, UserError | CalledOff) else f"{type(error).__name__}: {line}"


def is_there(path: epath.Path) -> bool:
    """Whether a file is there. Raises what keeps one from knowing, which `exists` takes for no."""
    if storage.is_url(str(path)):
        return path.exists()
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


# ---- directories ---------------------------------------------------------------------------------


def home(workdir: Workdir) -> epath.Path:
    """Where a work directory itself lies, on a disk or in a store."""
    if isinstance(workdir, Path):
        return epath.Path(workdir.absolute())
    stored_arrays.prepare()
    return epath.Path(workdir.url)


def full(workdir: Workdir) -> epath.Path:
    """Where a run's full checkpoints lie."""
    return home(workdir) / "checkpoints" / "full"


def snapshots(workdir: Workdir) -> epath.Path:
    """Where a run's snapshots lie."""
    return home(workdir) / "checkpoints" / "snapshots"


def newest(directory: epath.Path) -> epath.Path | None:
    """The newest committed checkpoint or snapshot of a run, by its `home`."""
    kinds = (directory / "checkpoints" / "full", directory / "checkpoints" / "snapshots")
    found = [path for kind in kinds for path in committed(kind)]
    return max(found, key=lambda path: int(path.name), default=None)


def committed(kind: epath.Path) -> list[epath.Path]:
    """The whole checkpoints in a directory of them, in no order."""
    return [marker.parent for marker in kind.glob(f"*/{MARKER}")]


def abandoned(workdir: Workdir, why: str) -> epath.Path:
    """Where checkpoints are moved that are not gone on from."""
    return home(workdir) / "abandoned" / why


def abandon_unfinished(workdir: Workdir) -> None:
    """Moves saves without a commit marker to `abandoned/`; all processes call it and wait.

    In a store, where a move is a copy, they are deleted.
    """
    if jax.process_index() == 0:
        for kind in (full(workdir), snapshots(workdir)):
            kind.mkdir(parents=True, exist_ok=True)  # in a store there are none, and none is needed
            for path in sorted(kind.iterdir()) if kind.is_dir() else ():
                if path.is_dir() and not is_there(path / MARKER):
                    if storage.is_url(str(path)):
                        storage.delete_directory(str(path))
                        done = "deleted"
                    else:
                        done = f"moved to {abandon(workdir, path, time.strftime('%Y%m%d-%H%M%S'))}"
                    print(f"{path}: a save that was not finished; {done}", flush=True)
    cluster.gather("unfinished saves are out of the way", True)


def abandon(workdir: Workdir, checkpoint: epath.Path, why: str) -> epath.Path:
    """Moves a checkpoint out of the way, and says where to."""
    target = abandoned(workdir, why) / checkpoint.parent.name / checkpoint.name
    if storage.is_url(str(checkpoint)):
        storage.move(str(checkpoint), str(target), MARKER)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.rename(target)
    return target


def _barriers(prefix: str) -> ocp.options.MultiprocessingOptions:
    """Orbax's barriers through the coordinator, which gives them up in our time and says for whom.

    By default they are programs for the devices, and wait for ever. Directories exist by then:
    `abandon_unfinished` makes them, since Orbax does not for processes that are named.
    """
    multihost._DEFAULT_BARRIER_TIMEOUT = cluster.restore_s()  # there is no option for it
    processes = set(range(jax.process_count())) if jax.process_count() > 1 else None
    return ocp.options.MultiprocessingOptions(
        active_processes=processes, barrier_sync_key_prefix=prefix
    )


@functools.cache
def _say_failures_once() -> None:
    """What goes wrong in a save is said by `wait`, in a line.

    Orbax logs it in each of its threads, and asyncio for each array.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    ours = lambda record: record.levelno < logging.ERROR or "orbax" not in record.pathname  # noqa: E731
    logging.getLogger("absl").addFilter(ours)


@contextlib.contextmanager
def _readable(directory: epath.Path) -> Iterator[None]:
    """Whatever Orbax raises while reading says which checkpoint it was."""
    try:
        yield
    except Exception as e:
        problem = storage.problem(e, str(directory)) if storage.is_url(str(directory)) else None
        if problem is not None:
            raise problem from e
        raise CheckpointError(
            f"{directory}: the checkpoint exists but cannot be read ({type(e).__name__}: {e}). "
            "The run stops rather than start anew beside it; restore it or move it away by hand."
        ) from e
