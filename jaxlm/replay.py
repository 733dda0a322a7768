"""`jaxlm replay EVENT`: runs the batch of an event again, and shows what it does layer by layer.

With the parameters of the last full checkpoint before it; `exact` first goes from there to the step
itself, by the very steps of the run. Nothing of the run is changed.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath

from jaxlm import checkpoint, evidence, judge, workdir
from jaxlm import mesh as mesh_lib
from jaxlm import run as run_lib
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.config import Config
from jaxlm.data.loader import Batch, Loader, load
from jaxlm.data.skips import Skips
from jaxlm.errors import UserError
from jaxlm.evidence import Bundle, Evidence
from jaxlm.guard import Guard, Seen
from jaxlm.integrity import CheckpointError
from jaxlm.run import Opened
from jaxlm.saving import NOTHING
from jaxlm.site import Workdir, of, send
from jaxlm.state import TrainState
from jaxlm.step import Metrics, compile_train_step
from jaxlm.train import Host

REPORT = "replay.json"


class Origin(NamedTuple):
    """Where a replay begins."""

    path: epath.Path
    state: TrainState
    notes: dict[str, Any]

    @property
    def step(self) -> int:
        """Of the checkpoint."""
        return int(self.path.name)


def replay(cfg: Config, directory: Workdir, name: str, exact: bool, start: str | None) -> int:
    """Prints the batch's figures beside those recorded and those of the batch before it.

    `start`: path or URL of a full checkpoint to take the parameters from. Writes `replay.json`
    beside the evidence. `UserError` if the event has none, or there is no checkpoint before it.
    """
    bundle = evidence.read(directory, name)
    opened = run_lib.open_run(cfg, directory)
    _check_same_ids(opened, bundle)
    path = checkpoint.home(of(start)) if start else _checkpoint_before(directory, bundle)
    with jax.set_mesh(opened.mesh):
        origin = _restore(opened, path)
        replayer = _Replayer(opened, origin, Skips(bundle.event["skips"]))
        if exact:
            replayer.go_to(bundle)
        report = replayer.report(bundle)
    for line in _lines(bundle, origin, report):
        print(line)
    workdir.write_json(bundle.path / REPORT, workdir.plain(report))
    send(directory, [f"events/{name}/{REPORT}"])
    return 0


class _Replayer:
    """A run from a checkpoint on, that writes nothing."""

    def __init__(self, opened: Opened, origin: Origin, skips: Skips):
        """`skips`: what the run jumped over when it came to the event."""
        self._opened, self._skips = opened, skips
        memory = judge.recalled(opened, origin.notes["memory"])
        self._guard = Guard(opened.cfg.guard, judge.jumps(opened), memory.get("guard"))
        self._state, self._step = origin.state, origin.step
        self._position = origin.notes["position"]
        self._train_step = compile_train_step(
            opened.step, opened.mesh, opened.where, opened.deterministic
        )
        self._host = Host(opened)

    def go_to(self, bundle: Bundle) -> None:
        """Does the steps before the event's."""
        end = bundle.event["before"]
        for batch in self._batches(self._position, end):
            self._guarded(batch)
            print(f"\rstep {self._step} of {bundle.event['step'] - 1}", end="", flush=True)
        print()
        assert self._step == bundle.event["step"] - 1

    def report(self, bundle: Bundle) -> dict[str, Any]:
        """The figures of the batch under the parameters that are reached; the last that is done."""
        norms, at = Evidence(self._opened).norms, evidence.batches(bundle.event)
        found = {name: norms(self._state.params, at_B) for name, at_B in at.items()}
        step = self._step
        rows = load(
            self._opened.corpus.train, mesh_lib.rows_sharding(self._opened.mesh), bundle.positions_B
        )
        last = Batch(rows, bundle.positions_B, int(bundle.positions_B[-1]) + 1)
        metrics = self._guarded(last)
        return {
            "parameters_after_step": step,
            "exact": step == bundle.event["step"] - 1,
            "loss": float(metrics.loss),
            "grad_norm": float(metrics.grad_norm),
            **found,
        }

    def _batches(self, start: int, end: int) -> Iterator[Batch]:
        opened = self._opened
        rows, size = mesh_lib.rows_sharding(opened.mesh), opened.cfg.train.batch_size
        with Loader(opened.corpus.train, rows, size, start, end, self._skips) as loader:
            yield from loader

    def _guarded(self, batch: Batch) -> Metrics:
        self._step += 1
        first, last = batch.positions_B[[0, -1]].tolist()
        limits = self._guard.allowed(self._step, last)
        controls = self._host.controls(batch, NOTHING, stop=False, limits=limits)
        self._state, metrics = self._train_step(self._state, batch.rows_BT, controls)
        seen = Seen(self._step, float(metrics.loss), float(metrics.grad_norm), first)
        if np.isfinite(seen[1:]).all():
            self._guard.push(seen, last)
        return metrics


def _check_same_ids(opened: Opened, bundle: Bundle) -> None:
    found = opened.corpus.train.rows(bundle.positions_B)
    if not np.array_equal(found, bundle.ids_BT1):
        raise UserError(
            f"{bundle.path}: {opened.cfg.data.manifest} has other rows at these positions than the "
            "run was given then; give the config and the corpus of that time"
        )


def _checkpoint_before(directory: Workdir, bundle: Bundle) -> epath.Path:
    """The newest full checkpoint that had not come to the event's batch.

    Those that a run left when it went back count too; those of the same steps, done again with
    other rows, do not.
    """
    event = bundle.event
    moved = checkpoint.abandoned(directory, event["event"]) / "full"
    paths = [*checkpoint.committed(checkpoint.full(directory)), *checkpoint.committed(moved)]
    for path in sorted(paths, key=lambda p: int(p.name), reverse=True):
        with contextlib.closing(Checkpoints(path.parent, Keep(1), read_only=True)) as found:
            step = int(path.name)
            try:
                if step < event["step"] and found.notes(step)["position"] <= event["before"]:
                    return path
            except CheckpointError:
                if (path / workdir.MARKER).exists():
                    raise  # it was not the run that has deleted it just now
    raise UserError(
        f"{directory}: no full checkpoint from before step {event['step']} is left; give one with "
        "the parameters to use: --from=PATH"
    )


def _restore(opened: Opened, path: epath.Path) -> Origin:
    with run_lib.verified(path, opened) as (found, notes, template):
        return Origin(path, found.restore(int(path.name), template), notes)


# ---- lines ---------------------------------------------------------------------------------------


def _lines(bundle: Bundle, origin: Origin, report: dict[str, Any]) -> Iterator[str]:
    event, after = bundle.event, report["parameters_after_step"]
    yield f"{event['event']}: {event['kind']}, {event['action']}; evidence in {bundle.path}"
    yield f"parameters after step {after}, from {origin.path}"
    for name in ("loss", "grad_norm"):
        same = workdir.plain(report[name]) == event[name]
        verdict = "the same" if same else "another" if report["exact"] else "of other parameters"
        yield f"{name:<10} {report[name]:.6g}, recorded {event[name]:.6g}: {verdict}"
    if not report["exact"]:
        yield f"--exact does the {event['step'] - 1 - after} steps up to the event's first"
    yield from _table(report["batch"], report.get("batch_before"))


def _table(batch: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    """This batch, and as a ratio the one before it."""
    yield f"{'':<40}{'this batch':>12}{'before':>12}{'ratio':>8}"
    for name, number in _figures(batch).items():
        other = None if before is None else _figures(before)[name]
        beside = (
            "" if other is None else f"{other:>12.4g}{number / other if other else np.nan:>8.2f}"
        )
        yield f"{name:<40}{number:>12.4g}{beside}"


def _figures(norms: dict[str, Any]) -> dict[str, float]:
    """Loss; residual and gradient norm of each layer; the gradient of all else."""
    found = {"loss": norms["loss"]}
    blocks = [x for name, x in norms["gradients"].items() if isinstance(x, list)]
    squares = np.square(np.array(blocks)).sum(0)
    for layer, rms in enumerate(norms["residual_rms"]):
        found[f"layer {layer} residual rms"] = rms
    for layer, square in enumerate(squares):
        found[f"layer {layer} gradient norm"] = float(np.sqrt(square))
    rest = {name: x for name, x in norms["gradients"].items() if not isinstance(x, list)}
    return {**found, **{f"{name} gradient norm": x for name, x in rest.items()}}
