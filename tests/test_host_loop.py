"""The loop of training never waits for the step in flight but to save, to score, or at the end."""

from pathlib import Path
from typing import Any

from jax._src.array import ArrayImpl

from jaxlm import train
from jaxlm.activity import HERE, Activity
from jaxlm.config import Config, DataConfig, EvaluateConfig, LogConfig, TrainConfig
from jaxlm.corruption import Checks
from jaxlm.metrics import Pending, Writer
from jaxlm.run import Options
from jaxlm.signals import Stop
from tests import tiny

STEPS, STRAY = 12, 5
CONFIG = Config(
    model=tiny.MODEL,
    data=DataConfig(source="synthetic", seq_len=tiny.T),
    train=TrainConfig(batch_size=8, end=f"{STEPS} steps"),
    evaluate=EvaluateConfig(every=None),
    log=LogConfig(every="4 steps", peak_tflops=1.0, tensorboard=False),
)


def test_only_steps_behind_the_one_in_flight_are_read(tmp_path: Path, monkeypatch):
    """Whatever the host takes of an array goes through `_value`, however it is asked for."""
    dispatched, reading = [0], [None]
    read: list[tuple[int, int]] = []
    strays: list[str] = []
    value, step, take = ArrayImpl._value, Checks.step, Writer._read

    def watched(array: Any) -> Any:
        in_loop = 0 < dispatched[0] < STEPS and HERE.current.activity == Activity.STEP
        if in_loop and reading[0] is None:
            strays.append(f"an array {array.shape} after step {dispatched[0]} was dispatched")
        return value.fget(array)  # pyright: ignore[reportAttributeAccessIssue]

    def counted(checks: Checks, *args: Any) -> Any:
        found = step(checks, *args)
        dispatched[0] += 1
        if dispatched[0] == STRAY:
            float(found[1].nll)
        return found

    def taken(writer: Writer, done: Pending) -> Any:
        reading[0] = done.step
        read.append((done.step, dispatched[0]))
        try:
            return take(writer, done)
        finally:
            reading[0] = None

    monkeypatch.setattr(ArrayImpl, "_value", property(watched))
    monkeypatch.setattr(Checks, "step", counted)
    monkeypatch.setattr(Writer, "_read", taken)
    assert train.train(CONFIG, tmp_path / "run", Options(), Stop()) == 0
    assert strays == [f"an array () after step {STRAY} was dispatched"], "ours, and no other"
    # Of the last step all is known before it is saved.
    assert read == [(n, n + 1) for n in range(1, STEPS)] + [(STEPS, STEPS)]
