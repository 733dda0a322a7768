"""A run before its loop: all that is checked, opened and restored before anything is compiled."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
from etils import epath
from jax.sharding import Mesh

from jaxlm import (
    checkpoint,
    cluster,
    compiled,
    loss,
    models,
    optim,
    preflight,
    state,
    terminal,
    workdir,
)
from jaxlm import mesh as mesh_lib
from jaxlm.checkpoint import Checkpoints, Keep, clear_unfinished
from jaxlm.config import Config, ModelConfig
from jaxlm.data import skips
from jaxlm.data.corpus import Corpus, open_corpus
from jaxlm.data.skips import Skips
from jaxlm.integrity import CheckpointError, Damaged
from jaxlm.models.transformer import Params
from jaxlm.ops import attention
from jaxlm.schema import ConfigError, changes, to_dict
from jaxlm.site import AUTOTUNE, Workdir
from jaxlm.state import TrainState
from jaxlm.step import StepDef
from jaxlm.workdir import step_of


@dataclass(frozen=True)
class Opened:
    """What is fixed for a run, to look at."""

    cfg: Config
    workdir: Workdir
    corpus: Corpus
    mesh: Mesh
    step: StepDef
    where: TrainState
    """Shardings of the state."""
    skips: Skips
    """Rows that are not trained on."""

    @property
    def deterministic(self) -> Path | None:
        """Where the choices of kernels are kept, if the step is to be deterministic on GPUs."""
        place = (self.workdir / AUTOTUNE).absolute()
        return place if self.cfg.corruption.deterministic else None


@dataclass(frozen=True)
class Run(Opened):
    """The same to train, and to write."""

    checkpoints: Checkpoints
    """Full ones."""
    snapshots: Checkpoints


class Options(NamedTuple):
    """What a command asks of the start of a run, besides its config."""

    fallback: bool = False
    """Go on from an older checkpoint where the newest cannot be used."""
    allow_change: tuple[str, ...] = ()
    """Fixed fields that may change, as "data.seed"; "data": the corpus, "tokenizer"."""
    init_from: str | None = None
    """Checkpoint or snapshot, or the work directory of its run, to take the parameters from."""
    verify_step: bool = False
    """Do the first step twice, and compare."""


class Beginning(NamedTuple):
    """Where a process starts in a run."""

    state: TrainState
    step: int
    position: int
    memory: dict[str, Any]
    """Of what watches the loss: `judge.Judge.memory`."""


def prepare(
    cfg: Config, directory: Workdir, before_commit: Callable[[], None] = lambda: None
) -> Run:
    """Checks machines, data, mesh and model, and opens the checkpoints to write.

    `before_commit`: as in `Checkpoints`.
    Raises `UserError` for what the user must put right, before anything is compiled.
    """

    def opens() -> tuple[Opened, dict[str, Any], int]:
        opened = open_run(cfg, directory)
        template = state.abstract(opened.step.model, opened.step.optimizer, opened.where)
        return opened, opened.corpus.train.fingerprint(), state.size(template)

    opened, saved = preflight.check_machines(opens)
    clear_unfinished(directory, workdir.saved(directory))
    cluster.of_first("room for a checkpoint", lambda: preflight.check_room(directory, saved))
    keep = cfg.checkpoint
    full, snapshots = checkpoint.full(directory), checkpoint.snapshots(directory)
    of_full = Keep(keep.keep, keep.keep_every)
    of_snapshots = Keep(keep.snapshot_keep, keep.snapshot_keep_every)
    return Run(
        **vars(opened),
        checkpoints=Checkpoints(full, of_full, before_commit=before_commit),
        snapshots=Checkpoints(snapshots, of_snapshots, before_commit=before_commit),
    )


def open_trained(cfg: Config, directory: Workdir) -> tuple[Opened, Params, int]:
    """A run to look at: the parameters and the step of its newest checkpoint or snapshot.

    Nothing is written.
    """
    opened = open_run(cfg, directory)

    def newest() -> epath.Path:
        path = checkpoint.newest(checkpoint.home(directory))
        if path is None:
            raise ConfigError(f"--workdir={directory}: has no finished checkpoint yet")
        return path

    path, params, notes = read_newest(newest, opened)
    if notes["data"] != opened.corpus.train.fingerprint():
        terminal.show("this is not the data that the run was trained on", sys.stderr)
    return opened, params, int(path.name)


def read_newest(
    newest: Callable[[], epath.Path], opened: Opened
) -> tuple[epath.Path, Params, dict[str, Any]]:
    """The newest checkpoint or snapshot there, and `read_params` of it.

    A run may go on there, and delete the one that is being read when it has a newer one: then that
    is read. `newest` is the same on all processes.
    """
    path = newest()
    while True:
        try:
            return path, *read_params(path, opened)
        except CheckpointError as e:
            # `Damaged` is raised by all processes together; anything else perhaps by this one.
            alike = jax.process_count() == 1 or isinstance(e, Damaged)
            newer = newest() if alike else path
            if newer == path:
                raise
            path = newer


def read_params(path: epath.Path, opened: Opened) -> tuple[Params, dict[str, Any]]:
    """Float32 parameters of a checkpoint or snapshot of the same model, and its notes.

    `CheckpointError` if it is damaged, `ConfigError` if it is of another model.
    """
    with verified(path, opened) as (found, notes, template):
        return found.restore_params(int(path.name), template.params), notes


@contextlib.contextmanager
def verified(
    path: epath.Path, opened: Opened
) -> Iterator[tuple[Checkpoints, dict[str, Any], TrainState]]:
    """A checkpoint or snapshot to read, its notes, and the state of this run that it must fit.

    `CheckpointError` if it is damaged, `ConfigError` if it is of another model or has no step for
    its name.
    """
    step = step_of(path.name)
    if step is None:
        raise ConfigError(
            f"{path}: the directory of a checkpoint is named by its step, as .../full/2000; "
            "rename it"
        )
    with contextlib.closing(Checkpoints(path.parent, Keep(1), read_only=True)) as found:
        found.verify(step)
        notes = found.notes(step)
        _check_same_model(notes, opened)
        yield found, notes, state.abstract(opened.step.model, opened.step.optimizer, opened.where)


def open_run(cfg: Config, directory: Workdir) -> Opened:
    """What is fixed for a run; reads data, mesh and model, writes nothing into `directory`."""
    skipped = Skips(cluster.of_first(skips.FILE, lambda: skips.load(directory).entries))
    corpus = open_corpus(cfg)
    mesh = mesh_lib.make(cfg.mesh)
    compiled.keep(mesh.local_devices[0])
    step, where = make_step(cfg, mesh, corpus.bos_id, corpus.pad_id)
    return Opened(cfg, directory, corpus, mesh, step, where, skipped)


def make_step(cfg: Config, mesh: Mesh, bos_id: int, pad_id: int) -> tuple[StepDef, TrainState]:
    """The step of a run on a mesh, and the shardings of its state.

    Raises `ConfigError` where model, batch or kernel do not fit the mesh. The devices may be real
    ones, or those of a topology to compile for.
    """
    need = attention.need(cfg.model, cfg.data.seq_len)
    kernel = attention.choose(cfg.model.attention, mesh.devices.flat[0], need)
    model, optimizer = models.build(cfg.model, kernel), optim.build(cfg.optim)
    loss.check_blocks(cfg.loss.vocab_blocks, cfg.model.padded_vocab, mesh.shape["tensor"])
    step = StepDef(
        model=model,
        optimizer=optimizer,
        loss=cfg.loss,
        clip_norm=cfg.optim.clip_norm,
        seed=cfg.train.seed,
        dropout=any(rate > 0 for _, rate in cfg.model.dropout),
        microbatches=mesh_lib.microbatches(mesh, cfg.train.batch_size, cfg.train.rows_per_device),
        bos_id=bos_id,
        pad_id=pad_id,
    )
    return step, state.shardings(model, optimizer, mesh)


def _check_same_model(saved: dict[str, Any], run: Opened) -> None:
    """`ConfigError` if a checkpoint's parameters would mean something else in this run.

    `saved` are its `notes`. Other data may be looked at, in the same tokens.
    """
    differs = [
        f"config.model.{name}: {old!r} -> {new!r}"
        for name, old, new, rule in changes(ModelConfig, saved["config"]["model"], run.cfg.model)
        if rule == "fixed"
    ]
    if saved["tokenizer"] != run.corpus.tokenizer_hash:
        differs.append(f"tokenizer: {saved['tokenizer']} -> {run.corpus.tokenizer_hash}")
    if differs:
        raise ConfigError(
            "the checkpoint is of another model:\n  "
            + "\n  ".join(differs)
            + "\nGive the config of its run and a corpus made with its tokenizer"
        )


def notes(run: Run, position: int, memory: dict[str, Any]) -> dict[str, Any]:
    """What is saved beside the arrays, and compared by whoever reads it."""
    return {
        "position": position,
        "memory": memory,
        "config": to_dict(run.cfg),
        "data": run.corpus.train.fingerprint(),
        "tokenizer": run.corpus.tokenizer_hash,
        "skips": run.skips.entries,
    }
