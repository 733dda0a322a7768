"""The training loop.

What all hosts must do alike (save, stop) is decided by the step: each process feeds its flags, the
step takes their maximum, and every process acts on the same result, read one step late.
"""

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import evaluate, metrics, optim, run, state, workdir
from jaxlm import mesh as mesh_lib
from jaxlm.clock import crossed, phase
from jaxlm.config import Config
from jaxlm.data.loader import Batch, Loader
from jaxlm.errors import RESTART, UserError
from jaxlm.metrics import Pending, Read, Writer
from jaxlm.models.transformer import Params
from jaxlm.ops import attention
from jaxlm.optim.schedules import Span
from jaxlm.run import Beginning, Run
from jaxlm.state import TrainState
from jaxlm.step import Controls, compile_train_step

SAVE, STOP = 0, 1
"""Places in the array of flags."""


def train(cfg: Config, directory: Path) -> int:
    """Trains to the end of `cfg`, resuming what lies in `directory`; returns the exit code.

    Raises `UserError` for what the user must put right, all of it before the first compile.
    """
    workdir.check_writable(directory)
    with workdir.lock(directory) if jax.process_index() == 0 else contextlib.nullcontext():
        prepared = run.prepare(cfg, directory)
        with jax.set_mesh(prepared.mesh), contextlib.closing(prepared.checkpoints):
            beginning = run.begin(prepared, say)
            if beginning.position == cfg.end:
                say(f"{directory}: this run is complete at step {beginning.step}; nothing to do")
                if jax.process_index() == 0:  # it may have been killed before it said so
                    workdir.write_status(directory, "done", beginning.step, cfg.end, cfg.end)
                return 0
            return loop(prepared, beginning)


def loop(run: Run, beginning: Beginning) -> int:
    """Trains from `beginning` to the end of the run, or until all agree to stop."""
    cfg = run.cfg
    train_state, step, position = beginning
    train_step = compile_train_step(run.step, run.mesh, run.where)
    host = Host(run)
    rows = mesh_lib.rows_sharding(run.mesh)
    loader = Loader(run.corpus.train, rows, cfg.train.batch_size, position, cfg.end, run.skips)
    writer = make_writer(run, beginning)
    evaluator = Evaluation(run, writer)
    saver = Saver(run, writer)
    with contextlib.closing(writer), loader, stop_signals() as stop:
        need = attention.need(cfg.model, cfg.data.seq_len)
        say(attention.describe(run.step.model.attention, run.mesh.devices.flat[0], need))
        say(f"training from step {step} to {writer.total_steps}; compiling")
        if step == 0:
            evaluator(train_state.params, step, position)
        waited_s = loader.wait_seconds
        for batch in loader:
            controls = host.controls(batch, save=saver.due, stop=stop.is_set())
            train_state, result = train_step(train_state, batch.rows_BT, controls)
            step, before, position = step + 1, position, batch.next_position
            wait_s, waited_s = loader.wait_seconds - waited_s, loader.wait_seconds
            pending = Pending(step, before, position, result, float(controls.lr), wait_s)
            asked = check(writer.push(pending))
            evaluating = evaluator.due(before, position)
            saving = saver.planned(before, position)
            if evaluating or saving:  # this step is waited for anyway: what it asked counts now
                asked = np.maximum(asked, check(writer.flush()))
            if evaluating:
                evaluator(train_state.params, step, position)
            stopping = asked[STOP] and position < cfg.end
            if saving or asked[SAVE] or stopping:
                saver(train_state, step)
            if stopping:
                break
        run.checkpoints.wait()
        writer.status("done" if position == cfg.end else "stopped", step, position)
    if position < cfg.end:
        say(f"stopped as asked: step {step} is saved; the same command goes on from there")
        return RESTART
    return 0


class Host:
    """What the host decides for a step, from the clock and its own circumstances."""

    def __init__(self, run: Run):
        cfg = run.cfg
        span = Span(cfg.rows("optim.warmup"), cfg.rows("optim.decay"), cfg.end)
        self._lr = optim.learning_rate(cfg.optim, cfg.peak_lr, span)
        self._dropout = cfg.dropout_phases()
        self._sharding = NamedSharding(run.mesh, P(mesh_lib.AXES, None))
        self._flags: dict[tuple[bool, bool], jax.Array] = {}

    def controls(self, batch: Batch, save: bool, stop: bool) -> Controls:
        """The learning rate after this step, the dropout during it, and this process's wishes."""
        return Controls(
            lr=np.float32(self._lr(batch.next_position)),
            dropout=np.float32(phase(batch.position, self._dropout)),
            positions=state.split_position(batch.positions_B),
            next_position=state.split_position(batch.next_position),
            flags=self._flag_array(save, stop),
        )

    def _flag_array(self, save: bool, stop: bool) -> jax.Array:
        if (save, stop) not in self._flags:
            shape = (self._sharding.mesh.size, 2)
            local = np.broadcast_to(np.array([save, stop], np.int32), shape)
            self._flags[save, stop] = jax.make_array_from_callback(
                shape, self._sharding, lambda index: local[index]
            )
        return self._flags[save, stop]


class Saver:
    """Full checkpoints: when one is due, and the saving."""

    def __init__(self, run: Run, writer: Writer):
        cfg = run.cfg
        self._run, self._writer = run, writer
        self._every = None if cfg.checkpoint.every is None else cfg.rows("checkpoint.every")
        minutes = cfg.checkpoint.every_minutes
        self._every_s = math.inf if minutes is None else 60 * minutes
        self._last_s = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether this process's clock asks for a save; all agree through the step."""
        return time.monotonic() - self._last_s >= self._every_s

    def planned(self, before: int, position: int) -> bool:
        """Whether the position alone asks for one: every so often, and at the end."""
        return position == self._run.cfg.end or crossed(self._every, before, position)

    def __call__(self, train_state: TrainState, step: int) -> None:
        """Saves in the background; a state whose loss is not finite is never saved."""
        check(self._writer.flush())
        with self._writer.pause():
            self._run.checkpoints.save(train_state, step, run.notes(self._run))
            self._last_s = time.monotonic()


class Evaluation:
    """Held-out loss: when it is due, and its lines."""

    def __init__(self, run: Run, writer: Writer):
        cfg = run.cfg
        self._run, self._writer = run, writer
        self._every = None if cfg.evaluate.every is None else cfg.rows("evaluate.every")
        self._score = evaluate.Evaluator(
            run.step, run.corpus, run.mesh, cfg.train.batch_size, cfg.evaluate.rows
        )

    def due(self, before: int, position: int) -> bool:
        """Every so often, and at the end."""
        return position == self._run.cfg.end or crossed(self._every, before, position)

    def __call__(self, params: Params, step: int, position: int) -> None:
        """Scores each held-out type and writes it down; without any, does nothing."""
        if not self._run.corpus.heldout:
            return
        with self._writer.pause():
            scores = self._score(params)
            flat = evaluate.as_metrics(scores)
            self._writer.record({"step": step, "position": position, **flat})
            self._writer.say(f"held-out at step {step}\n{evaluate.table(scores)}")


def check(read: Read | None) -> np.ndarray:
    """The flags that all agreed on; `UserError` if that step's loss or gradient was not finite."""
    if read is None:
        return np.zeros(2, np.int32)
    for name, value in (("loss", read.loss), ("gradient norm", read.grad_norm)):
        if not math.isfinite(value):
            raise UserError(
                f"the {name} of step {read.step} is {value}; nothing was saved after it. Resume "
                "with a lower config.optim.lr or clip_norm, or look at the batch: jaxlm trace"
            )
    return read.flags


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
    )


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets; a second signal ends the process at once.

    A thread reads them: Python's own handlers run when the main thread returns from what it is in,
    and that may be a long compile, or the wait for a process that is gone.
    """
    asked = threading.Event()
    inlet, outlet = socket.socketpair()
    outlet.setblocking(False)

    def watch() -> None:
        with inlet:
            if inlet.recv(1):
                asked.set()
                say("stopping after this step, then saving; a second signal ends it at once")
                if inlet.recv(1):
                    os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="jaxlm-signals").start()
    before = {s: signal.signal(s, lambda *_: None) for s in (signal.SIGTERM, signal.SIGINT)}
    signal.set_wakeup_fd(outlet.fileno())
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        outlet.close()


def say(line: str) -> None:
    """A line on the terminal, of process 0."""
    if jax.process_index() == 0:
        print(line, flush=True)
