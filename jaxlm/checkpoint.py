"""Checkpoints, full ones and snapshots: written by Orbax in the background, with our own checksums.

A save that fails is an outcome, not an exception: the run goes on, and `saving.Saver` tries again.
"""

import contextlib
import functools
import logging
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

from jaxlm import cluster, integrity, reads, storage, stored_arrays, terminal, vote
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.integrity import CheckpointError
from jaxlm.models.transformer import Params
from jaxlm.schedule import Cost
from jaxlm.site import Workdir
from jaxlm.state import TrainState
from jaxlm.vote import CalledOff, Vote
from jaxlm.workdir import MARKER, step_of

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
        """`directory`: a path or a URL. `before_commit`: called by process 0 when all is written,
        and before it deletes what is unfinished.

        What it raises fails the save.
        """
        _say_failures_once()
        reads.prepare()
        self._directory = epath.Path(directory)
        if storage.is_url(str(directory)):
            stored_arrays.prepare(str(directory))
        self._before = before_commit
        self._saving: _Save | None = None
        self._failed: set[int] = set()
        """Steps of failed saves of which Orbax does not know that they are gone."""
        self.cost: Cost | None = None
        """Of the last save that ended well."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jaxlm-save")
        kept: list[policies.PreservationPolicy] = [policies.LatestN(keep.newest), _ForEver(self)]
        if keep.every is not None:
            kept.append(policies.EveryNSteps(keep.every))
        if read_only and not self._directory.is_dir():
            raise CheckpointError(f"{self._directory}: no checkpoints there; has a run started?")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                save_decision_policy=policies.FixedIntervalPolicy(1),
                atomicity_options=AtomicityOptions(mode=AtomicityMode.COMMIT_FILE),
                create=not read_only and jax.process_count() == 1,
                async_options=AsyncOptions(
                    timeout_secs=cluster.save_s(),
                    barrier_sync_fn=self._at_barrier,
                    post_finalization_callback=self._before_commit,
                ),
                multiprocessing_options=_barriers(self._directory.name),
            ),
        )
        self._for_ever = self._marked()
        deleter = self._manager._checkpoint_deleter
        self._delete = deleter.delete_steps
        setattr(deleter, "delete_steps", self._try_to_delete)  # noqa: B010

    def latest(self) -> int | None:
        """Step of the newest committed checkpoint."""
        return max(self.steps(), default=None)

    def steps(self) -> list[int]:
        """Of all committed checkpoints, in order."""
        # Orbax counts a save from its start on, and one that failed until it has looked again.
        pending = {*self._failed}
        if self._saving is not None and not self._saving.is_over:
            pending.add(self._saving.step)
        return sorted({*self._manager.all_steps()} - pending)

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
            self._failed.add(step)
            return
        if for_ever:
            self._for_ever.add(step)
        self._forget_error()
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

    def discard_failed(self) -> None:
        """Deletes what failed saves have left, for its room; on all processes, when all have ended.

        What cannot be done now, as where a store is away, the next save does before it begins.
        """
        assert not self.busy
        with contextlib.suppress(Exception):
            self._discard_failed()

    def _discard_failed(self) -> None:
        """Orbax counts them, and would not delete what it thought to be replaced."""
        self._forget_error()
        if jax.process_index() == 0:
            for step in self._failed:
                self._remove_unfinished(step)
        self.reload()
        self._failed.clear()

    def _remove_unfinished(self, step: int) -> None:
        path = self.path(step)
        if not _is_there(path / MARKER) and _is_there(path):
            self._before()  # another run may be saving there, where this one stood still for long
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
            if self._failed:
                self._discard_failed()
            if jax.process_index() == 0:
                self._remove_unfinished(save.step)
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
        try:
            if save.errors:  # it did not come to where its own threads are waited for
                self._manager._wait_for_checkpointers()
            self._manager.wait_until_finished()
        except Exception as e:
            save.errors.append(e)
        if not save.errors:
            self.cost = Cost(started_s - start_s, time.monotonic() - started_s)
            return
        self._failed.add(save.step)
        try:
            save.vote.fail(cluster.save_s())
        except Exception as e:
            save.errors.append(e)

    def _try_to_delete(self, steps: list[int]) -> None:
        """Old checkpoints, behind a commit: where that fails, the new one is whole all the same."""
        try:
            self._delete(steps)
        except Exception as e:
            line = f"{self._directory}: old checkpoints could not be deleted ({_words(e)})"
            terminal.show(f"{line}; they take room until a start can, or somebody", sys.stderr)

    def _at_barrier(self, *, key: str, timeout_ms: int) -> None:
        """Orbax's barriers in the background."""
        save = self._saving
        if save is not None:
            if vote.WRITTEN in key and jax.process_count() > 1:
                mine = f"{STATE}/ocdbt.process_{jax.process_index()}"
                save.vote.hand_in(integrity.sums(self.path(save.step), mine))
            save.vote(key=key, timeout_ms=timeout_ms)

    def _before_commit(self) -> None:
        """Called by Orbax when all files are there, before the commit marker is.

        Orbax only logs what a callback raises, so it is kept for `wait`.
        """
        save = self._saving
        assert save is not None
        if jax.process_index() != 0:
            return
        try:
            if save.for_ever:
                (self.path(save.step) / FOR_EVER).write_text("")
            shares = save.vote.handed_in() if jax.process_count() > 1 else []
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
        self._manager.reload()
        self._for_ever = self._marked()

    def _marked(self) -> set[int]:
        """Steps of checkpoints that are never deleted."""
        return {s for s in self._manager.all_steps() if _is_there(self.path(s) / FOR_EVER)}


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


class _ForEver:
    """Orbax's policy for checkpoints that are marked.

    It is asked in the middle of a save, and asks nobody: what it could not tell there would leave
    this process behind, and the others waiting for it.
    """

    def __init__(self, checkpoints: Checkpoints):
        self._checkpoints = checkpoints

    def should_preserve(
        self, checkpoints: Sequence[policies.PolicyCheckpointInfo], *, context: Any
    ) -> list[bool]:
        return [c.step in self._checkpoints._for_ever for c in checkpoints]


def _is_there(path: epath.Path) -> bool:
    """Whether it is; `EnvironmentProblem` if that cannot be told, which `exists` takes for a no.

    Things are deleted for it.
    """
    if storage.is_url(str(path)):
        return path.exists()
    try:
        Path(path).stat()  # its own `stat` fails for an owner without a name
    except FileNotFoundError:
        return False
    except OSError as e:
        raise EnvironmentProblem(f"{path}: cannot be looked for ({e.strerror})") from e
    return True


def _words(error: Exception) -> str:
    line = storage.without_queries(str(error).strip().partition("\n")[0])
    return line if isinstance(error, UserError | CalledOff) else f"{type(error).__name__}: {line}"


# ---- directories ---------------------------------------------------------------------------------


def home(workdir: Workdir) -> epath.Path:
    """Where a work directory itself lies, on a disk or in a store."""
    if isinstance(workdir, Path):
        return epath.Path(workdir.absolute())
    stored_arrays.prepare(workdir.url)
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
    found = (marker.parent for marker in kind.glob(f"*/{MARKER}"))
    return [path for path in found if step_of(path.name) is not None]


def abandoned(workdir: Workdir, why: str) -> epath.Path:
    """Where checkpoints are moved that are not gone on from."""
    return home(workdir) / "abandoned" / why


def clear_unfinished(workdir: Workdir, saved: int | None) -> None:
    """Deletes saves without a commit marker; all processes call it and wait.

    But not that of step `saved`, the last one to be whole: it has lost its marker, and is moved to
    `abandoned/`.
    """
    if jax.process_index() == 0:
        for kind in (full(workdir), snapshots(workdir)):
            kind.mkdir(parents=True, exist_ok=True)  # in a store there are none, and none is needed
            for path in sorted(kind.iterdir()) if kind.is_dir() else ():
                step = step_of(path.name)
                if step is None or not path.is_dir() or _is_there(path / MARKER):
                    continue
                if kind == full(workdir) and step == saved:
                    target = abandon(workdir, path, f"unmarked-{time.strftime('%Y%m%d-%H%M%S')}")
                    terminal.show(f"{path}: has lost its marker; moved to {target}")
                else:
                    path.rmtree()
                    terminal.show(f"{path}: a save that was not finished; deleted")
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
    `clear_unfinished` makes them, since Orbax does not for processes that are named.
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
