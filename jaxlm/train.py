"""The training loop.

What all hosts must do alike (save, stop) is decided by the step: each process feeds its flags, the
step takes their maximum, and every process acts on the same result, read one step late. A process
that is alone need not wait for that to stop.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import (
    allocator,
    cluster,
    evaluate,
    metrics,
    notices,
    optim,
    preflight,
    resume,
    rollback,
    saving,
    schedule,
    site,
    state,
    terminal,
    workdir,
)
from jaxlm import mesh as mesh_lib
from jaxlm import run as run_lib
from jaxlm.activity import HERE, Activity
from jaxlm.clock import crossed, phase
from jaxlm.config import Config
from jaxlm.corruption import Checks, compile_checksums
from jaxlm.data.loader import Batch, Loader
from jaxlm.errors import RESTART
from jaxlm.evaluate import Evaluator
from jaxlm.evidence import Evidence
from jaxlm.guard import Limits
from jaxlm.judge import GoBack, Judge, Verdict
from jaxlm.ledger import DONE, STOPPED, Ledger
from jaxlm.metrics import Pending, Read, Writer
from jaxlm.models.transformer import Params
from jaxlm.ops import attention, dense
from jaxlm.optim.schedules import Span
from jaxlm.run import Beginning, Opened, Options, Run
from jaxlm.saving import FULL, SNAPSHOT, Saver
from jaxlm.signals import STEPS_ALONE, STEPS_TOGETHER, Haste, Stop
from jaxlm.site import Workdir
from jaxlm.state import TrainState
from jaxlm.step import Controls, compile_train_step
from jaxlm.watchdog import watching

SAVE, STOP = 0, 1
"""Places in the array of flags."""
LAST_WORD_S = 3.0
"""What a process that ends at once leaves for its last lines to come to an object store."""


def train(cfg: Config, directory: Workdir, options: Options, stop: Stop) -> int:
    """Trains to the end of `cfg`, resuming what lies in `directory`; returns the exit code.

    Raises `UserError` for what the user must put right, all of it before the first compile.
    """
    rollback.check_margin(cfg)
    resume.check_names(cfg, options.allow_change)
    main = cluster.place()[0] == 0
    ledger = Ledger(directory if main else None)

    def last_word(why: str) -> None:
        ledger.leave(why)
        site.try_to_send(directory, LAST_WORD_S)

    def before_commit() -> None:  # what a start needs that goes on from it is there before it
        site.send(directory, workdir.NEEDED)
        still_ours()

    with contextlib.ExitStack() as stack:
        stack.enter_context(watching(cfg.watch, directory, stop, last_word))
        notices.listen(cfg.watch, stop)
        preflight.check_hosts(cfg, directory)
        lock = site.lock(directory, stop.end) if main else contextlib.nullcontext(lambda: None)
        still_ours = stack.enter_context(lock)
        stack.enter_context(site.shared(directory, main))
        stack.enter_context(ledger)
        if allocator.in_force:
            say(allocator.LINE)
        run = run_lib.prepare(cfg, directory, before_commit)
        rollback.abandon_overtaken(run)
        with jax.set_mesh(run.mesh), _closing(run):
            programs = Programs(run, options)
            while True:
                beginning = resume.begin(run, options, say)
                if beginning.position == cfg.end:
                    say(
                        f"{directory}: this run is complete at step {beginning.step}; nothing to do"
                    )
                    if main:  # it may have been killed before it said so
                        status = ("done", beginning.step, cfg.end, cfg.end, beginning.step)
                        workdir.write_status(directory, *status)
                    ledger.end(DONE)
                    return 0
                ledger.begin(beginning.step, beginning.position)
                with HERE.during(Activity.STEP):
                    outcome = loop(run, beginning, programs, stop, ledger)
                if isinstance(outcome, int):
                    ledger.end(STOPPED if outcome else DONE)
                    return outcome
                with HERE.during(Activity.RESTORE):
                    run = rollback.go_back(run, outcome)


@contextlib.contextmanager
def _closing(run: Run) -> Iterator[None]:
    """Closes the checkpoints of a run, which waits for saves."""
    try:
        yield
    finally:
        with HERE.during(Activity.SAVE):
            run.checkpoints.close()
            run.snapshots.close()


class Programs:
    """What is compiled once in a process, however often the run goes back."""

    def __init__(self, run: Run, options: Options):
        self.train_step = compile_train_step(run.step, run.mesh, run.where, run.deterministic)
        self.checksums = compile_checksums(run)
        self.verify_first = options.verify_step
        self.compiled = False
        """Whether the step has been called."""
        cfg = run.cfg
        self.score = Evaluator(
            run.step, run.corpus, run.mesh, cfg.train.batch_size, cfg.evaluate.rows
        )
        self.keep_evidence = Evidence(run)


def loop(
    run: Run, beginning: Beginning, programs: Programs, stop: Stop, ledger: Ledger
) -> int | GoBack:
    """Trains from `beginning` to the end of the run, or until all agree to stop or to go back."""
    cfg = run.cfg
    train_state, step, position, memory = beginning
    host, rows = Host(run), mesh_lib.rows_sharding(run.mesh)
    loader = Loader(run.corpus.train, rows, cfg.train.batch_size, position, cfg.end, run.skips)
    writer = make_writer(run, beginning)
    judge = Judge(run, memory, writer)
    evaluation = Evaluation(run, writer, programs.score)
    checks = Checks(
        run, writer, programs.train_step, programs.checksums, step, programs.verify_first
    )
    reader, saves = Reader(run, writer, judge, stop), Saves(run, checks, judge)
    asked = np.zeros(2, np.int32)
    with contextlib.closing(writer), loader:
        _say_kernels(run)
        say(f"training from step {step} to {writer.total_steps}; compiling")
        checks.compare(train_state, step)  # and a save in haste need not wait for its compilation
        if step == 0:
            evaluation(train_state.params, step, position)
        for batch in HERE.each(Activity.DATA, loader):
            HERE.step = step + 1
            limits = judge.limits(step + 1, batch.positions_B)
            controls = host.controls(batch, saves.wish, stop.is_set(), limits)
            with HERE.during(Activity.STEP if programs.compiled else Activity.COMPILE):
                train_state, result = checks.step(train_state, batch, controls, position)
            loader.read_on()
            programs.compiled = stop.steps_run = True
            step, before, position = step + 1, position, batch.next_position
            ledger.at(step, position)
            lr = float(controls.lr)
            asked = reader.push(Pending(step, before, batch.positions_B, position, result, lr))
            evaluating, planned = evaluation.due(before, position), saves.planned(before, position)
            if evaluating or planned or asked[STOP] or asked[SAVE] in (FULL, SNAPSHOT):
                # This step is waited for anyway: what it asked counts now.
                asked = np.maximum(asked, reader.flush())
            for verdict in reader.verdicts():
                if verdict.keep_evidence:
                    programs.keep_evidence(verdict.event, train_state.params, step, writer)
                if verdict.problem is not None:
                    raise verdict.problem
                if verdict.back is not None:
                    return verdict.back
            if checks.due(before, position):
                checks.compare(train_state, step)
            stopping = asked[STOP] and reader.applied and position < cfg.end
            saves.want(before, position, asked[SAVE])
            if stopping or position == cfg.end:
                break
            if reader.applied:
                saves(train_state, step, position)
            if evaluating:  # after the save, which is written meanwhile
                evaluation(train_state.params, step, position)
        complete, stopping = position == cfg.end, bool(asked[STOP])
        saves.last(train_state, step, position, evaluation if complete and not stopping else None)
        writer.status("done" if complete else "stopped", step, position)
    return _exit_code(step, complete, stopping)


def _say_kernels(run: Run) -> None:
    model, need = run.step.model, attention.need(run.cfg.model, run.cfg.data.seq_len)
    say(attention.describe(model.attention, run.mesh.devices.flat[0], need))
    say(dense.describe(mesh_lib.platform_in_force(), model.dtype))


def _exit_code(step: int, complete: bool, stopping: bool) -> int:
    if complete and stopping:
        say("asked to stop: no held-out loss at the end; jaxlm evaluate gives it")
    if not complete:
        say(f"stopped as asked: step {step} is saved; the same command goes on from there")
    return 0 if complete else RESTART


class Reader:
    """Reads steps: what all asked for in them, and what is to be done about some."""

    def __init__(self, run: Run, writer: Writer, judge: Judge, stop: Stop):
        self._run, self._writer, self._judge, self._stop = run, writer, judge, stop
        self._alone = jax.process_count() == 1
        stop.steps = STEPS_ALONE if self._alone else STEPS_TOGETHER
        self._haste = Haste(run.cfg.watch, stop.steps)
        self._verdicts: list[Verdict] = []
        self.applied = True
        """Whether the last step that was read learned from its batch."""

    def push(self, pending: Pending) -> np.ndarray:
        """Takes a dispatched step, reads the one before: int32[2], the flags of all."""
        asked = self._take(self._writer.push(pending))
        late = self._haste.look(self._run.checkpoints.cost)
        if late is not None:
            self._writer.say(late)
        if self._alone:  # there is nobody to tell first
            asked = np.maximum(asked, [saving.NOTHING, self._stop.is_set()])
        return asked

    def flush(self) -> np.ndarray:
        """Reads the last step, if it has not been read; int32[2]."""
        return self._take(self._writer.flush())

    def verdicts(self) -> list[Verdict]:
        """Those that are new."""
        found, self._verdicts = self._verdicts, []
        return found

    def _take(self, read: Read | None) -> np.ndarray:
        if read is None:
            return np.zeros(2, np.int32)
        verdict, self.applied = self._judge(read), read.applied
        if verdict is not None:
            self._verdicts.append(verdict)
        return read.flags


class Host:
    """What the host decides for a step, from the clock and its own circumstances."""

    def __init__(self, run: Opened):
        cfg = run.cfg
        span = Span(cfg.rows("optim.warmup"), cfg.rows("optim.decay"), cfg.end)
        self._lr = optim.learning_rate(cfg.optim, cfg.peak_lr, span)
        self._dropout = cfg.dropout_phases()
        self._sharding = NamedSharding(run.mesh, P(mesh_lib.AXES, None))
        self._flags: dict[tuple[int, bool], jax.Array] = {}

    def controls(self, batch: Batch, save: int, stop: bool, limits: Limits) -> Controls:
        """The learning rate after this step, the dropout during it, and this process's wishes."""
        return Controls(
            lr=np.float32(self._lr(batch.next_position)),
            dropout=np.float32(phase(batch.position, self._dropout)),
            positions=state.split_position(batch.positions_B),
            next_position=state.split_position(batch.next_position),
            max_loss=np.float32(limits.loss),
            max_grad_norm=np.float32(limits.grad_norm),
            flags=self._flag_array(save, stop),
        )

    def _flag_array(self, save: int, stop: bool) -> jax.Array:
        if (save, stop) not in self._flags:
            shape = (self._sharding.mesh.size, 2)
            local = np.broadcast_to(np.array([save, stop], np.int32), shape)
            self._flags[save, stop] = jax.make_array_from_callback(
                shape, self._sharding, lambda index: local[index]
            )
        return self._flags[save, stop]


class Wanted(NamedTuple):
    """Saves that are due."""

    full: bool = False
    for_ever: bool = False
    """Whether the full one is."""
    snapshot: bool = False


class Saves:
    """Full checkpoints and snapshots of a run: when, and with what beside them."""

    def __init__(self, run: Run, checks: Checks, judge: Judge):
        self._run, self._checks, self._judge = run, checks, judge
        self._full = Saver(run.checkpoints, schedule.of_full(run.cfg))
        self._snapshots = Saver(run.snapshots, schedule.of_snapshots(run.cfg))
        self._wanted = Wanted()

    @property
    def wish(self) -> int:
        """What this process's clocks ask of all, through the step."""
        return saving.wish(self._full, self._snapshots)

    def planned(self, before: int, position: int) -> bool:
        """Whether a save will be due after this step, whatever the clocks say."""
        full, snapshots = self._full.schedule, self._snapshots.schedule
        asked = full.asks(before, position) or snapshots.asks(before, position)
        return asked or self._wanted != Wanted()

    def want(self, before: int, position: int, asked: int) -> None:
        """Takes what the position and the clocks of all ask for."""
        full, snapshots, owed = self._full.schedule, self._snapshots.schedule, self._wanted
        self._wanted = Wanted(
            full=owed.full or asked == FULL or full.asks(before, position),
            for_ever=owed.for_ever or full.chosen(before, position),
            snapshot=owed.snapshot or asked == SNAPSHOT or snapshots.asks(before, position),
        )

    def __call__(self, train_state: TrainState, step: int, position: int) -> None:
        """Starts what is wanted, after a step that learned from its batch.

        What came before a batch that could not be learned from may be at fault itself.
        """
        wanted, self._wanted = self._wanted, Wanted()
        if wanted == Wanted():
            return
        self._checks.compare(train_state, step)
        notes = run_lib.notes(self._run, position, self._judge.memory)
        with HERE.during(Activity.SAVE):
            first = wanted.snapshot and not self._full.begun  # a run needs a full one to go on
            if wanted.full or first:
                self._full.save(train_state, step, notes, wanted.for_ever)
            if wanted.snapshot and not (first and self._full.finish()):
                self._snapshots.save(saving.snapshot_of(train_state.params), step, notes)

    def last(
        self, train_state: TrainState, step: int, position: int, evaluation: "Evaluation | None"
    ) -> None:
        """The save that a process ends with; waits for it, when it has evaluated meanwhile."""

        def meanwhile() -> None:
            if evaluation is not None:
                evaluation(train_state.params, step, position)

        self._checks.compare(train_state, step)
        notes = run_lib.notes(self._run, position, self._judge.memory)
        with HERE.during(Activity.SAVE):
            for_ever = self._wanted.for_ever
            self._full.save_last(train_state, step, notes, for_ever, meanwhile)
            self._snapshots.finish()


class Evaluation:
    """Held-out loss: when it is due, and its lines."""

    def __init__(self, run: Run, writer: Writer, score: Evaluator):
        cfg = run.cfg
        self._run, self._writer, self._score = run, writer, score
        self._every = None if cfg.evaluate.every is None else cfg.rows("evaluate.every")

    def due(self, before: int, position: int) -> bool:
        """Every so often, and at the end."""
        return position == self._run.cfg.end or crossed(self._every, before, position)

    def __call__(self, params: Params, step: int, position: int) -> None:
        """Scores each held-out type and writes it down; without any, does nothing."""
        if not self._run.corpus.heldout:
            return
        with HERE.during(Activity.EVALUATE):
            scores = self._score(params)
            flat = evaluate.as_metrics(scores)
            self._writer.record({"step": step, "position": position, **flat})
            self._writer.say(f"held-out at step {step}\n{evaluate.table(scores)}")


def make_writer(run: Run, beginning: Beginning) -> Writer:
    """The writer of a run; measures the peak of a CPU."""
    cfg = run.cfg
    peak = math.nan
    if jax.process_index() == 0:
        one = metrics.peak_tflops(cfg.log.peak_tflops, cfg.model.compute_dtype)
        peak = one * 1e12 * run.mesh.size
    return Writer(
        run.workdir,
        batch_tokens=cfg.batch_tokens,
        flops_per_token=metrics.flops_per_token(cfg.model, cfg.data.seq_len),
        peak_flops=peak,
        every_rows=cfg.rows("log.every"),
        first_step=beginning.step,
        total_steps=beginning.step
        + run.skips.count(beginning.position, cfg.end) // cfg.train.batch_size,
        end=cfg.end,
        tensorboard=cfg.log.tensorboard,
        saved=run.checkpoints.latest,
    )


def say(line: str) -> None:
    """A line on the terminal, of process 0."""
    if jax.process_index() == 0:
        terminal.show(line)
