"""The trainer's step beside `bench.plain`: agreement first, then interleaved timing.

Both run in one process on the same rows from the same parameters. The trainer's objects are made
as `jaxlm.train` makes them.
"""

import contextlib
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from bench import plain
from jaxlm import resume, run, saving, train
from jaxlm.config import Config, DataConfig, ModelConfig, OptimConfig, TrainConfig
from jaxlm.data.loader import Batch, Loader
from jaxlm.guard import NO_LIMITS
from jaxlm.mesh import rows_sharding
from jaxlm.step import Metrics, compile_train_step

type Dtype = Literal["float32", "bfloat16"]
type Layers = Literal["scan", "unroll"]

AGREE_STEPS = 3
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-3}
"""Of a loss, in shares of it: what sums in another order may differ."""


class Disagreement(Exception):
    """The two steps do not compute the same thing, so their speeds mean nothing."""


class Times(NamedTuple):
    """Seconds a step, by round; the round that compiles is not among them."""

    trainer: list[float]
    plain: list[float]
    dispatch: list[float]
    """Of the trainer's step, until its call returned: what the host does before it may go on."""


class StepFigures(NamedTuple):
    """What `measure` saw."""

    batch_tokens: int
    tokens_per_s: float
    plain_tokens_per_s: float
    ratio: float
    """Trainer to plain, the median over rounds; above 1 the trainer is faster."""
    ratio_spread: tuple[float, float]
    """The middle half of the rounds."""
    rounds: int
    dispatch_s: float
    peak_bytes: int
    """Resident memory of the process when only the trainer had run."""
    save_stall_s: float
    """How long a checkpoint holds the loop up; the rest of it is written beside the steps."""
    save_s: float
    """Until the checkpoint is committed, with nothing else running."""


def config(dtype: Dtype, layers: Layers) -> Config:
    """The default model, of 56M parameters; 8 rows of 512 targets a step."""
    return Config(
        model=ModelConfig(compute_dtype=dtype, layers=layers),
        data=DataConfig(source="synthetic", seq_len=512),
        optim=OptimConfig(schedule="constant"),
        train=TrainConfig(batch_size=8, end="1000 steps"),
    )


def measure(dtype: Dtype, layers: Layers, seconds: float) -> StepFigures:
    """Times both for about so many seconds; raises `Disagreement`.

    Meant for a process of its own: peak memory is the process's.
    """
    with trainer(config(dtype, layers)) as ours:
        with ours.loader() as loader:
            ours.warm_up(next(loader))
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        theirs = Plain(ours)
        with ours.loader() as loader:
            times = compare(ours, theirs, loader, seconds)
        save_stall_s, save_s = ours.time_save()
    ratios = [p / t for t, p in zip(times.trainer, times.plain, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return StepFigures(
        batch_tokens=ours.cfg.batch_tokens,
        tokens_per_s=ours.cfg.batch_tokens / statistics.median(times.trainer),
        plain_tokens_per_s=ours.cfg.batch_tokens / statistics.median(times.plain),
        ratio=statistics.median(ratios),
        ratio_spread=(low, high),
        rounds=len(ratios),
        dispatch_s=statistics.median(times.dispatch),
        peak_bytes=peak_bytes,
        save_stall_s=save_stall_s,
        save_s=save_s,
    )


def compare(ours: "Trainer", theirs: "Plain", loader: Loader, seconds: float) -> Times:
    """Rounds of a step each, taking turns at going first; raises `Disagreement`.

    The first round compiles and is not timed; at least `AGREE_STEPS` are run, and compared.
    """
    times, began = Times([], [], []), time.perf_counter()
    for number, batch in enumerate(loader, start=1):
        rows = np.asarray(batch.rows_BT)
        if number % 2:
            timed, plain_timed = ours.timed(batch), theirs.timed(rows)
        else:
            plain_timed, timed = theirs.timed(rows), ours.timed(batch)
        if number <= AGREE_STEPS:
            _check(number, timed.loss, plain_timed.loss, ours.cfg.model.compute_dtype)
        if number == 1:
            began = time.perf_counter()
            continue
        times.trainer.append(timed.seconds)
        times.dispatch.append(timed.dispatch)
        times.plain.append(plain_timed.seconds)
        if number >= AGREE_STEPS and time.perf_counter() - began >= seconds:
            break
    return times


def _check(number: int, ours: float, theirs: float, dtype: str) -> None:
    if not abs(ours - theirs) <= TOLERANCE[dtype] * abs(theirs):
        raise Disagreement(
            f"step {number}: loss {ours:.6f} of the trainer, {theirs:.6f} of bench/plain.py, in "
            f"{dtype}: further apart than rounding ({TOLERANCE[dtype]:g} of it); one of them is "
            "wrong, and tests/bench/test_plain.py shows it at a smaller size"
        )


class Timed(NamedTuple):
    """One step."""

    loss: float
    seconds: float
    """Until all of the new state was there."""
    dispatch: float
    """Until the call returned."""


class Trainer:
    """What the loop of `jaxlm.train` has in hand, without writer and evaluation."""

    def __init__(self, prepared: run.Run):
        self.cfg = prepared.cfg
        self.run = prepared
        self.begin()
        self._host = train.Host(prepared)
        self._step = compile_train_step(prepared.step, prepared.mesh, prepared.where)

    def begin(self) -> None:
        """Takes the initial state."""
        found = resume.begin(self.run, run.Options(), lambda line: None)
        self.state, self.steps, self.position = found.state, found.step, found.position

    def loader(self) -> Loader:
        """Batches from the state's position to the end of the run."""
        where, cfg = rows_sharding(self.run.mesh), self.cfg
        return Loader(self.run.corpus.train, where, cfg.train.batch_size, self.position, cfg.end)

    def step(self, batch: Batch) -> Metrics:
        """One update, controls included; dispatched, not awaited."""
        controls = self._host.controls(batch, saving.NOTHING, stop=False, limits=NO_LIMITS)
        self.state, metrics = self._step(self.state, batch.rows_BT, controls)
        self.steps, self.position = self.steps + 1, batch.next_position
        return metrics

    def compiled(self, batch: Batch) -> jax.stages.Compiled:
        """The program of a step."""
        controls = self._host.controls(batch, saving.NOTHING, stop=False, limits=NO_LIMITS)
        return self._step.lower(self.state, batch.rows_BT, controls).compile()

    def warm_up(self, batch: Batch) -> None:
        """Compiles, runs one step, and goes back to the initial state."""
        self.timed(batch)
        self.begin()

    def timed(self, batch: Batch) -> Timed:
        """One update, awaited."""
        start = time.perf_counter()
        metrics = self.step(batch)
        dispatch = time.perf_counter() - start
        jax.block_until_ready(self.state)
        return Timed(float(metrics.loss), time.perf_counter() - start, dispatch)

    def time_save(self) -> tuple[float, float]:
        """Seconds until a save returns, and until it is committed."""
        start = time.perf_counter()
        self.run.checkpoints.save(self.state, self.steps, run.notes(self.run, self.position, {}))
        stall = time.perf_counter() - start
        problem = self.run.checkpoints.wait()
        if problem is not None:
            raise problem
        return stall, time.perf_counter() - start


@contextlib.contextmanager
def trainer(cfg: Config) -> Iterator[Trainer]:
    """A trainer at position 0, in a work directory that is removed afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        prepared = run.prepare(cfg, Path(directory))
        with jax.set_mesh(prepared.mesh), contextlib.closing(prepared.checkpoints):
            yield Trainer(prepared)


class Plain:
    """The plain step, from the trainer's present parameters."""

    def __init__(self, ours: Trainer):
        model, optim = ours.cfg.model, ours.cfg.optim
        self.shape = plain.Shape(
            vocab_size=model.vocab_size,
            dtype=jnp.dtype(model.compute_dtype),
            bos_id=ours.run.corpus.bos_id,
            pad_id=ours.run.corpus.pad_id,
            theta=model.rope_theta,
            eps=model.norm_eps,
            b1=optim.b1,
            b2=optim.b2,
            adam_eps=optim.eps,
            decay=optim.weight_decay,
            clip=optim.clip_norm,
        )
        params = as_plain(jax.device_get(ours.state.params))
        self.state = plain.start(jax.tree.map(jnp.array, params))
        self._lr = ours.cfg.peak_lr

    def timed(self, rows: np.ndarray) -> Timed:
        """One update, awaited."""
        start = time.perf_counter()
        self.state, loss = plain.step(self.shape, self.state, rows, self._lr)
        dispatch = time.perf_counter() - start
        jax.block_until_ready(self.state)
        return Timed(float(loss), time.perf_counter() - start, dispatch)


def as_plain(params: Any) -> Any:
    """The trainer's parameters in the names and shapes of `bench.plain`."""
    blocks, layers = params["blocks"], []
    for i in range(len(blocks["mlp_norm"]["scale"])):
        block = jax.tree.map(lambda a, i=i: a[i], blocks)
        products = block["attention"] | block["mlp"]
        norms = {name: block[name]["scale"] for name in ("attention_norm", "mlp_norm")}
        layers.append({name: p["kernel"] for name, p in products.items()} | norms)
    return {
        "table": params["embedding"]["table"],
        "norm": params["norm"]["scale"],
        "head": params["head"]["kernel"],
        "layers": layers,
    }
