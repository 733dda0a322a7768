"""A run before its loop: all that is checked, opened and restored before anything is compiled."""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from jaxlm import checkpoint, cluster, loss, models, optim, state, workdir
from jaxlm import mesh as mesh_lib
from jaxlm.checkpoint import Checkpoints, abandon_unfinished
from jaxlm.config import Config, ModelConfig
from jaxlm.data import fingerprint, mixture, skips
from jaxlm.data.corpus import Corpus, open_corpus
from jaxlm.data.skips import Skips
from jaxlm.data.source import TrainRows
from jaxlm.models.transformer import Params
from jaxlm.ops import attention
from jaxlm.schema import ConfigError, changes, flat, to_dict
from jaxlm.state import TrainState
from jaxlm.step import StepDef


@dataclass(frozen=True)
class Run:
    """What is fixed for a run."""

    cfg: Config
    workdir: Path
    corpus: Corpus
    mesh: Mesh
    step: StepDef
    where: TrainState
    """Shardings of the state."""
    checkpoints: Checkpoints
    skips: Skips
    """Rows that are not trained on."""


class Beginning(NamedTuple):
    """Where a process starts in a run."""

    state: TrainState
    step: int
    position: int


def prepare(cfg: Config, directory: Path) -> Run:
    """Checks hosts, data, mesh and model, and opens the checkpoints to write.

    Raises `UserError` for what the user must put right, before anything is compiled.
    """
    fields = {name: repr(value) for name, value in flat(cfg)}
    cluster.check_same("preflight", {"jax": jax.__version__, **fields})
    abandon_unfinished(directory)
    opened = _open(cfg, directory, read_only=False)
    data = {
        "data": json.dumps(opened.corpus.train.fingerprint()),
        skips.FILE: json.dumps(opened.skips.windows),
    }
    cluster.check_same("data", data)
    return opened


def open_trained(cfg: Config, directory: Path) -> tuple[Run, Params, int]:
    """A run to look at: its newest checkpoint's parameters and step; nothing is written."""
    run = _open(cfg, directory, read_only=True)
    step = run.checkpoints.latest()
    if step is None:
        raise ConfigError(f"--workdir={directory}: has no finished checkpoint yet")
    run.checkpoints.verify(step)
    notes = run.checkpoints.notes(step)
    check_same_model(notes, run)
    if notes["data"] != run.corpus.train.fingerprint():
        print("this is not the data that the run was trained on", file=sys.stderr, flush=True)
    template = state.abstract(run.step.model, run.step.optimizer, run.where).params
    return run, run.checkpoints.restore_params(step, template), step


def _open(cfg: Config, directory: Path, read_only: bool) -> Run:
    skipped = skips.load(directory)
    corpus = open_corpus(cfg)
    mesh = mesh_lib.make(cfg.mesh)
    step, where = make_step(cfg, mesh, corpus.bos_id, corpus.pad_id)
    checkpoints = Checkpoints(directory, cfg.checkpoint, read_only)
    return Run(cfg, directory, corpus, mesh, step, where, checkpoints, skipped)


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


def begin(run: Run, say: Callable[[str], None]) -> Beginning:
    """A new state, or the one of the newest checkpoint; written to the history."""
    if isinstance(run.corpus.train, TrainRows):
        left = {name: n for name, n in run.corpus.train.shards.leftover_chunks().items() if n}
        if left:
            say(f"chunks at the ends of shards that fill no row, and are not used: {left}")
    if run.corpus.plan is not None:
        for line in mixture.lines(run.corpus.plan):
            say(line)
    beginning, changed = _new_or_resumed(run)
    cfg, position = run.cfg, beginning.position
    if position > cfg.end:
        raise ConfigError(
            f"config.train.end={cfg.train.end!r} is row {cfg.end}, before the checkpoint's row "
            f"{position}; choose a later end"
        )
    _check_rows_left(run, position)
    skipped = cfg.end - position - run.skips.count(position, cfg.end)
    if skipped:
        say(f"{skips.FILE}: {skipped:,} rows from row {position:,} on are not trained on")
    if jax.process_index() == 0:
        workdir.write_json(run.workdir / "config.json", to_dict(cfg))
        start = workdir.Start(
            step=beginning.step,
            position=beginning.position,
            batch_size=cfg.train.batch_size,
            processes=jax.process_count(),
            devices=run.mesh.size,
            mesh=list(run.mesh.shape.values()),
            data=fingerprint.digest(run.corpus.train.fingerprint()),
            skips=[list(window) for window in run.skips.windows],
            changed=changed,
            time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )
        workdir.append_start(run.workdir, start)
    for name, old, new in changed:
        say(f"config.{name} has changed from {old!r} to {new!r}; written to history.jsonl")
    if run.checkpoints.latest() is not None:
        say(f"resuming at step {beginning.step}, row {position:,}")
    return beginning


def _new_or_resumed(run: Run) -> tuple[Beginning, list[list[Any]]]:
    model, optimizer = run.step.model, run.step.optimizer
    step = run.checkpoints.latest()
    if step is None:
        return Beginning(state.init(model, optimizer, run.cfg.train.seed, run.where), 0, 0), []
    run.checkpoints.verify(step)
    notes, changed = _compared(run.checkpoints, step, run.cfg, run.corpus)
    restored = run.checkpoints.restore(step, state.abstract(model, optimizer, run.where))
    position = state.join_position(restored.position)
    skips.check_past(Skips(notes["skips"]), run.skips, position)
    return Beginning(restored, step, position), changed


def check_resumes(cfg: Config, directory: Path, corpus: Corpus) -> None:
    """`UserError` if the newest checkpoint in a directory is of another config or other data.

    Reads its notes alone, and writes nothing. That it is whole is for a start to see.
    """
    if checkpoint.full(directory).is_dir():
        with contextlib.closing(Checkpoints(directory, cfg.checkpoint, read_only=True)) as found:
            step = found.latest()
            if step is not None:
                _compared(found, step, cfg, corpus)


def _compared(
    checkpoints: Checkpoints, step: int, cfg: Config, corpus: Corpus
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A checkpoint's notes, and what the config changes of it; `UserError` if it may not."""
    notes = checkpoints.notes(step)
    changed = allowed_changes(notes["config"], cfg)
    fingerprint.check(notes["data"], corpus.train.fingerprint())
    return notes, changed


def _check_rows_left(run: Run, position: int) -> None:
    """`ConfigError` if what is left of a run is not whole batches, or all of it is skipped."""
    end, size = run.cfg.end, run.cfg.train.batch_size
    left = run.skips.count(position, end)
    skipped = f", without the {end - position - left} that {skips.FILE} skips,"
    if left % size:
        raise ConfigError(
            f"config.train.batch_size={size}: from row {position} to the end, row {end}, there are "
            f"{left} rows{skipped if run.skips.windows else ','} which is not whole batches. Use a "
            f"batch size that divides {left}, or skip {left % size} more rows in {skips.FILE}"
        )
    if not left and position < end:
        raise ConfigError(
            f"{skips.FILE} skips all rows from row {position}, where the run is, to its end, row "
            f"{end}: nothing is left to train on. Set a later config.train.end"
        )


def check_same_model(saved: dict[str, Any], run: Run) -> None:
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


def allowed_changes(saved: dict[str, Any], cfg: Config) -> list[list[Any]]:
    """[field, old, new] of each recorded field that differs from a checkpoint's config.

    `ConfigError` names the fixed fields that differ; with Adafactor also `optim.b1`, where a change
    would begin or end its first moment.
    """
    found = list(changes(Config, saved, cfg))
    forbidden = [
        f"config.{name}: {old!r} -> {new!r}"
        for name, old, new, rule in found
        if rule == "fixed"
        or (name == "optim.b1" and cfg.optim.name == "adafactor" and 0 in (old, new))
    ]
    if forbidden:
        raise ConfigError(
            "this run began with another configuration, and these fields may not change:\n  "
            + "\n  ".join(forbidden)
            + "\nGive the old values, or start a new run in another --workdir"
        )
    return [[name, old, new] for name, old, new, rule in found if rule == "recorded"]


def notes(run: Run) -> dict[str, Any]:
    """What is saved beside the state, and compared by whoever reads it."""
    return {
        "config": to_dict(run.cfg),
        "data": run.corpus.train.fingerprint(),
        "tokenizer": run.corpus.tokenizer_hash,
        "skips": run.skips.windows,
    }
