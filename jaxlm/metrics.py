"""What a run reports: FLOPs, utilisation, and a writer that reads metrics one step late.

The writer is handed step N's arrays when N has been dispatched and reads those of step N - 1, so
the host never waits for the step in flight.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from tqdm import tqdm

from jaxlm import activity, hardware, terminal
from jaxlm.activity import Activity
from jaxlm.clock import crossed
from jaxlm.config import ModelConfig
from jaxlm.site import Workdir
from jaxlm.workdir import EVENTS, METRICS, append_line, open_lines, plain, write_status


def matrix_params(cfg: ModelConfig) -> int:
    """Parameters that take part in matrix products: layers and head, not the input table."""
    d, k = cfg.d_model, cfg.head_size
    attention = d * k * (2 * cfg.n_heads + 2 * cfg.n_kv_heads)
    return cfg.n_layers * (attention + 3 * d * cfg.d_ff) + d * cfg.padded_vocab


def flops_per_token(cfg: ModelConfig, seq_len: int) -> float:
    """Model FLOPs of a training token: 6 a matrix parameter, and causal attention over a row.

    Attention is 2 products, 2 FLOPs a multiply-add, 3 passes, half the keys: 6 L T H K. The
    recomputation of remat is not counted (PaLM, appendix B, but with the causal half).
    """
    attention = 6 * cfg.n_layers * seq_len * cfg.n_heads * cfg.head_size
    return 6.0 * matrix_params(cfg) + attention


def peak_tflops(cfg_peak: float | None, dtype: str) -> float:
    """Peak of one device: as configured, of its chip, or measured on a CPU.

    NaN for an accelerator that `hardware.CHIPS` does not know.
    """
    if cfg_peak is not None:
        return cfg_peak
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return measured_tflops(dtype) / jax.local_device_count()
    chip = hardware.by_kind(device.device_kind)
    return math.nan if chip is None else chip.bf16_tflops


def measured_tflops(dtype: str, size: int = 2048, tries: int = 5) -> float:
    """The best of some products of square matrices on one device of this process."""
    product = jax.jit(lambda a: a @ a)
    best = math.inf
    # On the mesh of a run every device, of other processes too, would make the same product.
    with jax.set_mesh(jax.make_mesh((1,), ("one",), devices=jax.local_devices()[:1])):
        a = jnp.full((size, size), 0.5, jnp.dtype(dtype))
        product(a).block_until_ready()
        for _ in range(tries):
            start = time.perf_counter()
            product(a).block_until_ready()
            best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e12


class Pending(NamedTuple):
    """A step whose metrics have not been read."""

    step: int
    before: int
    """Position before it."""
    positions_B: np.ndarray
    """int64[B]: of its rows."""
    position: int
    """Position after it."""
    metrics: Any
    lr: float


class Read(NamedTuple):
    """What all processes read of a step, alike."""

    step: int
    before: int
    """Position before it."""
    positions_B: np.ndarray
    """int64[B]: of its rows."""
    loss: float
    grad_norm: float
    applied: bool
    """Whether the batch was learned from."""
    flags: np.ndarray


class Interval(NamedTuple):
    """Where the figures of the next report begin."""

    step: int
    trained_s: float
    waited_s: float


class Writer:
    """Terminal, `metrics.jsonl` and TensorBoard of process 0; the flags of all.

    Units: seconds, tokens (targets, padding included), nats.
    """

    def __init__(
        self,
        workdir: Workdir,
        *,
        batch_tokens: int,
        flops_per_token: float,
        peak_flops: float,
        every_rows: int,
        first_step: int,
        total_steps: int,
        end: int,
        tensorboard: bool,
        saved: Callable[[], int | None],
    ):
        """`saved`: step of the newest checkpoint."""
        self._tokens = batch_tokens
        self._flops = flops_per_token
        self._peak = peak_flops
        self._every = every_rows
        self.total_steps = total_steps
        self._workdir, self._end = workdir, end
        self._saved = saved
        self._unwritable: set[str] = set()
        self._pending: Pending | None = None
        self._interval: Interval | None = None
        self._main = jax.process_index() == 0
        self._events = None
        if self._main:
            self._file = open_lines(workdir / METRICS)
            self._bar = tqdm(
                total=total_steps,
                initial=first_step,
                unit="step",
                disable=not terminal.is_watched(),
                dynamic_ncols=True,
            )
            if tensorboard:
                from tensorboardX import SummaryWriter

                self._events = SummaryWriter(str(workdir / "tensorboard"))

    def push(self, pending: Pending) -> Read | None:
        """Takes a dispatched step and reads the one before, if there was one."""
        before, self._pending = self._pending, pending
        return None if before is None else self._read(before)

    def flush(self) -> Read | None:
        """Reads the last step, if it has not been read."""
        before, self._pending = self._pending, None
        return None if before is None else self._read(before)

    def say(self, line: str) -> None:
        """A line on the terminal of process 0 that does not tear the progress bar."""
        if self._main:
            with terminal.dropping():
                self._bar.write(line) if not self._bar.disable else terminal.show(line)

    def record(self, values: dict[str, Any]) -> None:
        """A line of `metrics.jsonl`, and TensorBoard scalars for its numbers."""
        if not self._main:
            return
        finite = {name: None if value - value != 0 else value for name, value in values.items()}
        with self.going_on(METRICS):
            self._file.write(json.dumps(finite) + "\n")  # JSON knows no NaN
            self._file.flush()
        if self._events is not None:
            with self.going_on("tensorboard"):
                for name, value in values.items():
                    if name not in ("step", "position") and isinstance(value, int | float):
                        self._events.add_scalar(name, value, values["step"])

    def event(self, values: dict[str, Any], line: str) -> None:
        """Says a line, and adds one to `events.jsonl`."""
        self.say(line)
        if self._main:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            with self.going_on(EVENTS):
                append_line(self._workdir / EVENTS, plain({"time": now, **values}))

    def status(self, state: str, step: int, position: int) -> None:
        """Writes `status.json`."""
        if self._main:
            with self.going_on("status.json"):
                write_status(self._workdir, state, step, position, self._end, self._saved())

    @contextlib.contextmanager
    def going_on(self, name: str) -> Iterator[None]:
        """What cannot be written ends no training; it is said once, until it can be.

        `name`: of the file in the work directory.
        """
        try:
            yield
        except OSError as e:
            if name not in self._unwritable:
                where = f"{self._workdir}/{name}"
                self.say(f"{where}: cannot be written ({e.strerror}); training goes on")
            self._unwritable.add(name)
        else:
            self._unwritable.discard(name)

    def close(self) -> None:
        """Closes files."""
        if self._main:
            with terminal.dropping():
                self._bar.close()
            with self.going_on(METRICS):
                self._file.close()
            if self._events is not None:
                self._events.close()

    def _read(self, done: Pending) -> Read:
        loss, grad_norm = float(done.metrics.loss), float(done.metrics.grad_norm)
        read = Read(
            done.step,
            done.before,
            done.positions_B,
            loss,
            grad_norm,
            bool(done.metrics.applied),
            np.asarray(done.metrics.flags),
        )
        if not self._main:
            return read
        if not self._bar.disable:
            with terminal.dropping():
                self._bar.update(done.step - self._bar.n)
        spent = activity.HERE.spent()  # less evaluation and saving, which are no training
        waited_s = spent[Activity.DATA]
        now = Interval(done.step, spent[Activity.STEP] + waited_s, waited_s)
        if self._interval is None:  # the first step compiles: it is in no interval
            self._interval = now
        elif done.step == self.total_steps or crossed(self._every, done.before, done.position):
            self._report(done, self._interval, now)
            self._interval = now
        return read

    def _report(self, done: Pending, start: Interval, end: Interval) -> None:
        trained_s = max(end.trained_s - start.trained_s, 1e-9)
        step_s = trained_s / (end.step - start.step)
        tokens_per_s = self._tokens / step_s
        values = {
            "step": done.step,
            "position": done.position,
            "loss": float(done.metrics.loss),
            "nll": float(done.metrics.nll),
            "grad_norm": float(done.metrics.grad_norm),
            "learning_rate": done.lr,
            "targets": float(done.metrics.weight),
            "step_time_s": step_s,
            "tokens_per_s": tokens_per_s,
            "mfu": tokens_per_s * self._flops / self._peak,
            "data_wait_share": (end.waited_s - start.waited_s) / trained_s,
        }
        self.record(values)
        self.status("training", done.step, done.position)
        left = tqdm.format_interval(round((self.total_steps - done.step) * step_s))
        self.say(
            f"step {done.step:>6}/{self.total_steps}  loss {values['loss']:.4f}  "
            f"grad {values['grad_norm']:.3f}  lr {done.lr:.2e}  {step_s:.3f} s/step  "
            f"{tokens_per_s:,.0f} tok/s  MFU {values['mfu']:.1%}  "
            f"data {values['data_wait_share']:.1%}  left {left}"
        )
