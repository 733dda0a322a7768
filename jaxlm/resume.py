"""Where a start of a run begins: at its own checkpoint, at another run's parameters, or anew.

The order of a resume, the same on every process; 1 and 2 are done before `begin`:

1. Directories without a commit marker are unfinished saves: deleted, and said so. That of the step
   that `status.json` names has lost its marker: moved to `abandoned/`, and the start refused.
2. Checkpoints that have learned from rows that the run has jumped over since are moved too.
3. The newest committed checkpoint is the one. None: the run is new, unless it has saved one.
4. Every file is read and compared with its checksum, each process its share; all agree.
5. Its notes (config, data fingerprint) are compared with this run's; a forbidden change stops it.
6. All restore that one step. What cannot be restored stops the run: it never starts anew beside a
   checkpoint, and goes back to an older one only where `--fallback` asks for it.
7. Snapshots of steps that will be done again are moved.
"""

import contextlib
import difflib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from etils import epath

from jaxlm import checkpoint, cluster, site, state, workdir
from jaxlm.activity import HERE, Activity
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.config import Config
from jaxlm.data import fingerprint, mixture, skips
from jaxlm.data.corpus import Corpus
from jaxlm.data.skips import Skips
from jaxlm.data.source import TrainRows
from jaxlm.integrity import CheckpointError, Damaged
from jaxlm.run import Beginning, Options, Run, read_newest
from jaxlm.schema import ConfigError, changes, flat, to_dict
from jaxlm.site import Workdir

DATA, TOKENIZER = "data", "tokenizer"
"""What `--allow-change` may name besides fixed fields."""


def check_names(cfg: Config, allowed: Sequence[str]) -> None:
    """`ConfigError` for what `--allow-change` names and no configuration has: it allows nothing."""
    known = [DATA, TOKENIZER, *(name.removeprefix("config.") for name, _ in flat(cfg))]
    for name in allowed:
        if name not in known:
            near = difflib.get_close_matches(name.removeprefix("config."), known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"--allow-change={name}: no such field; {hint}Give a field as `jaxlm config` lists "
                f"them, {DATA} or {TOKENIZER}"
            )


def begin(run: Run, options: Options, say: Callable[[str], None]) -> Beginning:
    """A new state, or the one of the newest checkpoint; written to the history.

    Raises `UserError` for what the user must put right.
    """
    if isinstance(run.corpus.train, TrainRows):
        left = {name: n for name, n in run.corpus.train.shards.leftover_chunks().items() if n}
        if left:
            say(f"chunks at the ends of shards that fill no row, and are not used: {left}")
    if run.corpus.plan is not None:
        for line in mixture.lines(run.corpus.plan):
            say(line)
    with HERE.during(Activity.RESTORE):
        resumed = _resumed(run, options, say)
    origin, changed = None, []
    if resumed:
        beginning, changed = resumed
    else:
        beginning, origin = _new(run, options, say)
    cfg, position = run.cfg, beginning.position
    if position > cfg.end:
        raise ConfigError(
            f"config.train.end={cfg.train.end!r} is row {cfg.end}, before the checkpoint's row "
            f"{position}; choose a later end"
        )
    if not _check_rows_left(run, position):
        position = cfg.end  # what an event has made it jump over was all that was left
        beginning = beginning._replace(position=position)
    if resumed:
        known = cluster.of_first("snapshots that are there", run.snapshots.steps)
        again = [step for step in known if step > beginning.step]
        _put_aside(run, run.snapshots, again, "done-again", say)
    skipped = cfg.end - position - run.skips.count(position, cfg.end)
    if skipped:
        say(f"{skips.FILE}: {skipped:,} rows from row {position:,} on are not trained on")
    if jax.process_index() == 0:
        _write_start(run, beginning, changed, origin)
    for name, old, new in changed:
        say(f"config.{name} has changed from {old!r} to {new!r}; written to history.jsonl")
    if resumed:
        say(f"resuming at step {beginning.step}, row {position:,}")
    return beginning


def _write_start(
    run: Run, beginning: Beginning, changed: list[list[Any]], origin: epath.Path | None
) -> None:
    cfg = run.cfg
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
        init_from=origin and str(origin),
    )
    workdir.append_start(run.workdir, start)
    # Or what an earlier start has said would be taken for a word of this one.
    at, end, saved = (beginning.step, beginning.position), cfg.end, run.checkpoints.latest()
    workdir.write_status(run.workdir, "training", *at, end, saved)
    site.send(run.workdir)


# ---- a run that has begun before -----------------------------------------------------------------


def _resumed(
    run: Run, options: Options, say: Callable[[str], None]
) -> tuple[Beginning, list[list[Any]]] | None:
    """Where the newest checkpoint was, and what has changed since; None for a new run."""
    step = _newest(run, options, say)
    if step is None:
        return None
    notes, changed = _compared(run.checkpoints, step, run.cfg, run.corpus, options.allow_change)
    template = state.abstract(run.step.model, run.step.optimizer, run.where)
    try:
        restored = run.checkpoints.restore(step, template)
    except CheckpointError as e:
        named = [change for change in changed if change[0] in options.allow_change]
        if not named:
            raise
        raise ConfigError(
            f"{run.checkpoints.path(step)}: is whole, but cannot be restored with what "
            "--allow-change lets through:\n  "
            + "\n  ".join(f"config.{name}: {old!r} -> {new!r}" for name, old, new in named)
            + "\nGive the old values of those that change the shapes or types of its arrays, or "
            "start a new run in another --workdir"
        ) from e
    position = state.join_position(restored.position)
    skips.check_past(Skips(notes["skips"]), run.skips, position)
    return Beginning(restored, step, position, notes["memory"]), changed


def _newest(run: Run, options: Options, say: Callable[[str], None]) -> int | None:
    """Step of the newest checkpoint, which is whole; None if the run has none."""
    step = _latest(run.checkpoints)
    saved = cluster.of_first("the last save", lambda: workdir.saved(run.workdir))
    if saved is not None and (step is None or step < saved) and not options.fallback:
        raise CheckpointError(
            f"{run.checkpoints.path(saved)}: this run has saved step {saved}, and now it is not "
            f"there, or without its marker; the newest is {_words(step)}. Restore it from a copy, "
            "or go on from the one before it: jaxlm train --fallback"
        )
    while step is not None:
        try:
            run.checkpoints.verify(step)
        except Damaged as e:
            if not options.fallback:
                raise
            say(str(e).partition("\nRestore it")[0])
            _put_aside(run, run.checkpoints, [step], "damaged", say)
            step = _latest(run.checkpoints)
            if step is None:
                raise CheckpointError(
                    f"{run.workdir}: no checkpoint is left to fall back on. Begin a new run in "
                    "another --workdir, perhaps with --init-from a snapshot of this one"
                ) from None
        else:
            break
    if step is None and saved is not None:
        raise CheckpointError(
            f"{run.workdir}: this run has saved step {saved}, but no checkpoint is there to fall "
            "back on. Begin a new run in another --workdir"
        )
    return step


def _latest(kind: Checkpoints) -> int | None:
    """Step of the newest, as process 0 sees it: another host may still list what it has moved."""
    return cluster.of_first("the newest checkpoint", kind.latest)


def _put_aside(
    run: Run, kind: Checkpoints, steps: list[int], why: str, say: Callable[[str], None]
) -> None:
    """Moves checkpoints of these steps away; all processes call it and wait.

    Damaged ones, or snapshots of steps that will be done again: Orbax saves none before its newest.
    """
    if not steps:
        return
    cluster.gather(f"checkpoints to move are known: {why}", True)
    if jax.process_index() == 0:
        name = f"{why}-{time.strftime('%Y%m%d-%H%M%S')}"
        for step in steps:
            target = checkpoint.abandon(run.workdir, kind.path(step), name)
            say(f"{kind.path(step)}: moved to {target}")
    cluster.gather(f"checkpoints are moved: {why}", True, cluster.restore_s())
    kind.reload()


def check_resumes(cfg: Config, directory: Workdir, corpus: Corpus) -> None:
    """`UserError` if the newest checkpoint in a directory is of another config or other data.

    Reads its notes alone, and writes nothing. That it is whole is for a start to see.
    """
    path = checkpoint.full(directory)
    if path.is_dir():
        with contextlib.closing(Checkpoints(path, Keep(1), read_only=True)) as found:
            step = found.latest()
            if step is not None:
                _compared(found, step, cfg, corpus)


def _compared(
    checkpoints: Checkpoints, step: int, cfg: Config, corpus: Corpus, allowed: Sequence[str] = ()
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A checkpoint's notes, and what the config changes of it; `UserError` if it may not."""
    notes = checkpoints.notes(step)
    changed = allowed_changes(notes["config"], cfg, allowed)
    now = corpus.train.fingerprint()
    if DATA not in allowed:
        fingerprint.check(notes["data"], now)
    elif notes["data"] != now:
        changed.append([DATA, *map(fingerprint.digest, (notes["data"], now))])
    if notes["tokenizer"] != corpus.tokenizer_hash:
        if TOKENIZER not in allowed:
            raise ConfigError(
                f"the checkpoint was trained on tokens of the tokenizer {notes['tokenizer']}, and "
                f"the corpus is of {corpus.tokenizer_hash}: to the model they mean something else. "
                f"Give the run's own corpus, or, if you know better, --allow-change={TOKENIZER}"
            )
        changed.append([TOKENIZER, notes["tokenizer"], corpus.tokenizer_hash])
    return notes, changed


def allowed_changes(
    saved: dict[str, Any], cfg: Config, allowed: Sequence[str] = ()
) -> list[list[Any]]:
    """[field, old, new] of each recorded field that differs from a checkpoint's config.

    `ConfigError` names the fixed fields that differ and are not `allowed` to; with Adafactor also
    `optim.b1`, where a change would begin or end its first moment.
    """
    found = list(changes(Config, saved, cfg))
    forbidden = [
        f"config.{name}: {old!r} -> {new!r}"
        for name, old, new, rule in found
        if (
            rule == "fixed"
            or (name == "optim.b1" and cfg.optim.name == "adafactor" and 0 in (old, new))
        )
        and name not in allowed
    ]
    if forbidden:
        raise ConfigError(
            "this run began with another configuration, and these fields may not change:\n  "
            + "\n  ".join(forbidden)
            + "\nGive the old values, or start a new run in another --workdir, or, if you know "
            "better, name each: --allow-change=FIELD"
        )
    return [[name, old, new] for name, old, new, rule in found if rule != "free"]


def _check_rows_left(run: Run, position: int) -> int:
    """How many. `ConfigError` if they are not whole batches, or all were skipped by hand."""
    end, size = run.cfg.end, run.cfg.train.batch_size
    left = run.skips.count(position, end)
    skipped = f", without the {end - position - left} that {skips.FILE} skips,"
    if left % size:
        raise ConfigError(
            f"config.train.batch_size={size}: from row {position} to the end, row {end}, there are "
            f"{left} rows{skipped if run.skips.windows else ','} which is not whole batches. Use a "
            f"batch size that divides {left}, or skip {left % size} more rows in {skips.FILE}"
        )
    ahead = zip(run.skips.windows, run.skips.events, strict=True)
    gone_back = any(event and stop > position for (_, stop), event in ahead)
    if not left and position < end and not gone_back:
        raise ConfigError(
            f"{skips.FILE} skips all rows from row {position}, where the run is, to its end, row "
            f"{end}: nothing is left to train on. Set a later config.train.end"
        )
    return left


# ---- a new run -----------------------------------------------------------------------------------


def _new(
    run: Run, options: Options, say: Callable[[str], None]
) -> tuple[Beginning, epath.Path | None]:
    """And the checkpoint that its parameters are from; None if they were drawn."""
    snapshot = _latest(run.snapshots)
    if snapshot is not None:
        raise CheckpointError(
            f"{run.snapshots.path(snapshot)}: is a snapshot, parameters alone, and cannot be "
            "resumed; the full checkpoints are gone. Restore one, or begin a new run in another "
            f"--workdir with --init-from={run.snapshots.path(snapshot)}"
        )
    asked = _origin(run, options)
    fresh = state.init(run.step.model, run.step.optimizer, run.cfg.train.seed, run.where)
    if asked is None:
        return Beginning(fresh, 0, 0, {}), None
    with HERE.during(Activity.RESTORE):
        origin, params, _ = read_newest(lambda: _origin(run, options) or asked, run)
    say(f"parameters from {origin}")
    return Beginning(fresh._replace(params=params), 0, 0, {}), origin


def _origin(run: Run, options: Options) -> epath.Path | None:
    """The checkpoint that a new run takes its parameters from; None if they are drawn.

    A run that was begun and has no checkpoint yet goes on with what it has begun with.
    """

    def find() -> str | None:
        starts = [start for start in workdir.history(run.workdir) if start.step == 0]
        asked = options.init_from and checkpoint.home(site.of(options.init_from))
        begun = starts[-1].init_from if starts else None
        if begun is None:
            return str(_newest_of(asked)) if asked else None
        path = checkpoint.home(site.of(begun))
        if not asked or asked not in (path, *path.parents):
            raise ConfigError(
                f"{run.workdir}: this run was begun with the parameters of {begun}, and has no "
                f"checkpoint of its own yet. Give --init-from={begun} again, or begin a new run in "
                "another --workdir"
            )
        return str(_newest_of(path))

    found = cluster.of_first("where the parameters are from", find)
    return None if found is None else epath.Path(found)


def _newest_of(path: epath.Path) -> epath.Path:
    """A checkpoint, of its own path or of its run's work directory: the newest there."""
    if (path / workdir.MARKER).exists():
        return path
    found = checkpoint.newest(path)
    if found is None:
        raise ConfigError(
            f"--init-from={path}: is no checkpoint, no snapshot, and no work directory with one"
        )
    return found


def _words(step: int | None) -> str:
    return "none" if step is None else f"that of step {step}"
