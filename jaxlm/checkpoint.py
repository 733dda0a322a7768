"""Full checkpoints: written by Orbax in the background, with our own checksums inside.

The order of a resume, the same on every process:

1. Directories without a commit marker are unfinished saves: moved to `abandoned/`, and said so.
2. The newest committed checkpoint is the one. None: the run is new.
3. Every file is read and compared with its checksum, each process its share; all agree.
4. Its notes (config, data fingerprint) are compared with this run's; a forbidden change stops it.
5. All restore that one step. What cannot be restored stops the run: it never starts anew beside a
   checkpoint, and never falls back to an older one unasked.

Orbax keeps no checksum of array data: a flipped bit would be restored as a wrong number.
"""

import contextlib
import json
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies
from orbax.checkpoint.options import AsyncOptions, AtomicityMode, AtomicityOptions

from jaxlm import cluster
from jaxlm.config import CheckpointConfig
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.models.transformer import Params
from jaxlm.state import TrainState

MARKER = "commit_success.txt"
CHECKSUMS = "checksums.json"
NOTES = "notes"
STATE = "state"
REWRITTEN = "_CHECKPOINT_METADATA"
"""Orbax updates this file after our checksums are written."""


class CheckpointError(UserError):
    """A checkpoint that exists but cannot be used: names the file and the way out."""


class Checkpoints:
    """The full checkpoints of a run, under `workdir/checkpoints/full/<step>`."""

    def __init__(self, workdir: Path, cfg: CheckpointConfig, read_only: bool = False):
        self._directory = full(workdir)
        self._saving: Path | None = None
        self._checksum_error: Exception | None = None
        keep: list[policies.PreservationPolicy] = [policies.LatestN(cfg.keep)]
        if cfg.keep_every is not None:
            keep.append(policies.EveryNSteps(cfg.keep_every))
        if read_only and not self._directory.is_dir():
            raise CheckpointError(f"{self._directory}: no checkpoints there; has a run started?")
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(keep),
                save_decision_policy=policies.FixedIntervalPolicy(1),
                atomicity_options=AtomicityOptions(mode=AtomicityMode.COMMIT_FILE),
                create=not read_only,
                async_options=AsyncOptions(post_finalization_callback=self._write_checksums),
            ),
        )

    def latest(self) -> int | None:
        """Step of the newest committed checkpoint."""
        return self._manager.latest_step()

    def save(self, state: TrainState, step: int, notes: dict[str, Any]) -> None:
        """Starts a save; waits for the one before. Returns once the arrays are copied."""
        self.wait()
        self._saving = self._directory / str(step)
        args = ocp.args.Composite(
            **{STATE: ocp.args.PyTreeSave(state), NOTES: ocp.args.JsonSave(notes)}
        )
        with _writable(self._saving):
            accepted = self._manager.save(step, args=args)
        if not accepted:
            raise CheckpointError(
                f"{self._saving}: Orbax declined to save step {step}; the newest checkpoint is "
                f"step {self.latest()}: was this directory used by another run?"
            )

    def notes(self, step: int) -> dict[str, Any]:
        """What was written beside the state: `run.notes`."""
        with _readable(self._directory / str(step)):
            restored = self._manager.restore(
                step, args=ocp.args.Composite(**{NOTES: ocp.args.JsonRestore()})
            )
            return restored[NOTES]

    def restore(self, step: int, template: TrainState) -> TrainState:
        """The state of a step, placed as `template` says; `verify` it first."""
        with _readable(self._directory / str(step)):
            args = ocp.args.PyTreeRestore(
                item=template, restore_args=ocp.checkpoint_utils.construct_restore_args(template)
            )
            return self._manager.restore(step, args=ocp.args.Composite(**{STATE: args}))[STATE]

    def restore_params(self, step: int, template: Params) -> Params:
        """The parameters of a step alone: a third of the bytes of its state."""
        with _readable(self._directory / str(step)):
            item = {"params": template}
            args = ocp.args.PyTreeRestore(
                item=item,
                restore_args=ocp.checkpoint_utils.construct_restore_args(item),
                partial_restore=True,
            )
            restored = self._manager.restore(step, args=ocp.args.Composite(**{STATE: args}))
            return restored[STATE]["params"]

    def verify(self, step: int) -> None:
        """`CheckpointError` if a file of this step is damaged; every process raises it."""
        verify(self._directory / str(step))

    def wait(self) -> None:
        """Waits for the save in flight; raises what went wrong in it."""
        with _writable(self._saving):
            self._manager.wait_until_finished()
            if self._checksum_error is not None:
                raise self._checksum_error

    def close(self) -> None:
        """Waits, and gives the threads back."""
        self.wait()
        self._manager.close()

    def _write_checksums(self) -> None:
        """Called by Orbax when all files are there, before the commit marker is.

        Orbax only logs what a callback raises, so the error is kept for `wait`.
        """
        assert self._saving is not None
        if jax.process_index() != 0:
            return
        try:
            names = [n for n in _files(self._saving) if Path(n).name != REWRITTEN]
            sums = dict(zip(names, _checksums(self._saving, names), strict=True))
            (self._saving / CHECKSUMS).write_text(json.dumps(sums), encoding="utf-8")
        except Exception as e:
            self._checksum_error = e
            raise


def abandon_unfinished(workdir: Path) -> None:
    """Moves saves without a commit marker to `abandoned/`; all processes call it and wait."""
    if jax.process_index() == 0:
        full(workdir).mkdir(parents=True, exist_ok=True)
        for path in sorted(full(workdir).iterdir()):
            if path.is_dir() and not (path / MARKER).exists():
                now = time.strftime("%Y%m%d-%H%M%S")
                target = workdir / "abandoned" / f"{path.name}-{now}"
                target.parent.mkdir(exist_ok=True)
                print(f"{path}: a save that was not finished; moved to {target}", flush=True)
                path.rename(target)
    cluster.gather("unfinished saves are moved", True)


def full(workdir: Path) -> Path:
    """Where a run's full checkpoints lie."""
    return workdir.absolute() / "checkpoints" / "full"


def verify(directory: Path) -> None:
    """Compares each file with its checksum, each process its share; all agree on the outcome.

    Raises `CheckpointError` with the names of damaged and missing files.
    """
    try:
        expected = json.loads((directory / CHECKSUMS).read_text(encoding="utf-8"))
        if not isinstance(expected, dict) or not expected:
            raise ValueError("names no file")
    except (OSError, ValueError) as e:
        problems = [f"{CHECKSUMS}: {e}"]
    else:
        mine = sorted(expected)[jax.process_index() :: jax.process_count()]
        found = dict(zip(mine, _checksums(directory, mine), strict=True))
        problems = [
            f"{name}: {'is missing' if found[name] is None else 'does not match its checksum'}"
            for name in mine
            if found[name] != expected[name]
        ]
    everyone = cluster.gather(f"verify {directory.name}", problems)
    problems = sorted({p for problems in everyone for p in problems})
    if problems:
        raise CheckpointError(
            f"{directory}: the checkpoint is damaged and will not be used:\n  "
            + "\n  ".join(problems[:10])
            + f"\nRestore it from a copy. To go on from the checkpoint before it instead, move "
            f"{directory} away by hand."
        )


@contextlib.contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Whatever Orbax raises while reading says which checkpoint it was."""
    try:
        yield
    except Exception as e:
        raise CheckpointError(
            f"{directory}: the checkpoint exists but cannot be read ({type(e).__name__}: {e}). "
            "The run stops rather than start anew beside it; restore it or move it away by hand."
        ) from e


@contextlib.contextmanager
def _writable(directory: Path | None) -> Iterator[None]:
    """Whatever Orbax raises while writing says which checkpoint it was."""
    try:
        yield
    except Exception as e:
        raise EnvironmentProblem(
            f"{directory}: the checkpoint could not be saved ({str(e).splitlines()[0]}). The ones "
            "before it are whole: see that the disk has room and can be written, then start again"
        ) from e


def _files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def _checksums(directory: Path, names: list[str]) -> list[list[int] | None]:
    """[size, crc32] of each file, None where it is missing."""
    # Threads help: crc32 and reads let go of the interpreter's lock.
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda name: _checksum(directory / name), names))


def _checksum(path: Path) -> list[int] | None:
    size, crc = 0, 0
    try:
        with path.open("rb") as f:
            while block := f.read(1 << 22):
                size, crc = size + len(block), zlib.crc32(block, crc)
    except FileNotFoundError:
        return None
    return [size, crc]
