"""FLOPs against XLA's own count, and a writer that reads one step late."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import activity, metrics, workdir
from jaxlm.activity import Activity, Record
from jaxlm.config import ModelConfig
from jaxlm.metrics import Pending, Writer, flops_per_token, matrix_params
from jaxlm.step import Metrics, gradients
from tests import tiny
from tests.clock import Clock
from tests.tiny import MODEL

B, T = 2, 64
WIDE = replace(MODEL, d_model=128, d_ff=384, n_kv_heads=8, vocab_size=512, qk_norm=False)


@pytest.mark.parametrize("heads", [(8, 8), (8, 2)])
def test_flops_are_those_that_xla_counts(heads):
    """Within 3%: XLA counts whole attention where we count the causal half, and small things."""
    cfg = replace(WIDE, n_heads=heads[0], n_kv_heads=heads[1], layers="unroll")
    step = tiny.step_def(cfg)
    rows = jax.ShapeDtypeStruct((B, T + 1), jnp.uint16)
    program = jax.jit(lambda params, rows: gradients(params, step, rows, None))
    counted = program.lower(step.model.abstract(), rows).compile().cost_analysis()["flops"]
    other_half = flops_per_token(cfg, T) - 6 * matrix_params(cfg)
    expected = B * T * (flops_per_token(cfg, T) + other_half)
    assert 0.99 < counted / expected < 1.03


def test_matrix_params_are_all_but_norms_and_the_input_table():
    model = tiny.step_def().model.abstract()
    total = sum(leaf.size for leaf in jax.tree.leaves(model))
    scales = 2 * (2 * 32 + 2 * 4) + 32
    assert matrix_params(MODEL) == total - scales - 128 * 32
    assert matrix_params(replace(MODEL, tied_embeddings=True)) == matrix_params(MODEL)


def test_flops_of_a_model_by_hand():
    """Llama 2 7B at 4,096: 6 x 6.607e9 and 6 x 32 x 4096 x 4096."""
    cfg = ModelConfig(
        vocab_size=32_000, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, d_ff=11_008
    )
    assert matrix_params(cfg) == 6_607_077_376
    assert flops_per_token(cfg, 4096) == 6 * 6_607_077_376 + 6 * 32 * 4096 * 4096


def test_peak_is_configured_or_measured():
    assert metrics.peak_tflops(123.0, "bfloat16") == 123.0
    assert 1e-3 < metrics.measured_tflops("float32", size=256) < 100


def test_the_peak_is_measured_on_one_device_inside_a_mesh_too():
    """On all 8 of them the same product would be made 8 times."""
    alone = metrics.measured_tflops("float32", size=512)
    with jax.set_mesh(tiny.mesh((1, 8, 1))):
        assert metrics.measured_tflops("float32", size=512) > alone / 4


def pending(step: int, loss: float = 2.0) -> Pending:
    scalar = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    flags = jnp.array([0, step % 2], jnp.int32)
    result = Metrics(
        scalar(loss), scalar(1.5), scalar(0.5), scalar(30), jnp.array(step != 5), flags
    )
    before = (step - 1) * 8
    return Pending(step, before, before + np.arange(8), before + 8, result, 1e-3)


def writer(directory, total_steps: int = 10, tensorboard: bool = False) -> Writer:
    return Writer(
        directory,
        batch_tokens=256,
        flops_per_token=1e6,
        peak_flops=1e9,
        every_rows=24,
        first_step=0,
        total_steps=total_steps,
        end=8 * total_steps,
        tensorboard=tensorboard,
        saved=lambda: 7,
    )


def test_metrics_are_read_one_step_late(tmp_path):
    w = writer(tmp_path)
    assert w.push(pending(1)) is None
    read = w.push(pending(2, loss=math.nan))
    assert read is not None and (read.step, read.loss) == (1, 2.0)
    assert np.array_equal(read.flags, [0, 1])
    last = w.flush()
    assert last is not None and last.step == 2 and math.isnan(last.loss)
    assert w.flush() is None
    w.close()


class Unread:
    """Fails when it is read: a step still in flight."""

    def __getattr__(self, name: str):
        raise AssertionError(f"{name} was read in the step that made it")


def test_the_step_in_flight_is_not_waited_for(tmp_path):
    w = writer(tmp_path)
    w.push(pending(1))
    w.push(pending(2)._replace(metrics=Unread()))
    w.close()


def test_a_line_an_interval_and_one_at_the_end(tmp_path, capsys):
    """Every 3 steps of 8 rows; the first step compiles and is in no interval."""
    w = writer(tmp_path)
    for step in range(1, 11):
        w.push(pending(step))
    w.flush()
    w.record({"step": 10, "position": 80, "heldout/book/loss": 3.0})
    w.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 9, 10, 10]
    first = lines[0]
    assert list(first) == [
        "step", "position", "loss", "nll", "grad_norm", "learning_rate", "targets",
        "step_time_s", "tokens_per_s", "mfu", "data_wait_share",
    ]  # fmt: skip
    assert (first["position"], first["loss"], first["nll"], first["targets"]) == (24, 2.0, 1.5, 30)
    assert math.isclose(first["tokens_per_s"], 256 / first["step_time_s"])
    assert math.isclose(first["mfu"], first["tokens_per_s"] * 1e6 / 1e9)
    assert workdir.status(tmp_path)["position"] == 80
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and said[0].startswith("step      3/10  loss 2.0000  grad 0.500  lr 1.0")


def test_only_steps_and_the_wait_for_data_are_training_time(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    here = Record()
    monkeypatch.setattr(activity, "HERE", here)
    w = writer(tmp_path)
    with here.during(Activity.STEP):
        clock.s += 30
        w.push(pending(1))  # the first step compiles
        clock.s += 2
        w.push(pending(2))
        with here.during(Activity.SAVE):
            clock.s += 50
        clock.s += 3
        w.push(pending(3))
        with here.during(Activity.DATA):
            clock.s += 4
        w.push(pending(4))
    w.close()
    (line,) = workdir.metrics(tmp_path)
    assert (line["step"], line["step_time_s"]) == (3, (3 + 4) / 2)
    assert line["data_wait_share"] == pytest.approx(4 / 7)


def test_a_torn_last_line_is_ended_before_the_next(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "l')
    w = writer(tmp_path)
    w.record({"step": 3, "loss": 1.0})
    w.close()
    assert [line["step"] for line in workdir.metrics(tmp_path)] == [1, 3]


def test_what_cannot_be_written_is_said_once_until_it_can_be(tmp_path, capsys):
    """Though other files can."""
    found = writer(tmp_path)
    (tmp_path / "status.json").mkdir()
    for step in (1, 2):
        found.status("training", step, 8 * step)
        found.record({"step": step, "loss": 1.0})
    said = capsys.readouterr().out
    assert said.count("status.json: cannot be written (Is a directory); training goes on") == 1
    assert said.count("cannot be written") == 1
    (tmp_path / "status.json").rmdir()
    found.status("training", 3, 24)
    (tmp_path / "status.json").unlink()
    (tmp_path / "status.json").mkdir()
    found.status("training", 4, 32)
    assert capsys.readouterr().out.count("cannot be written") == 1
    found.close()


def test_tensorboard_gets_the_numbers(tmp_path):
    w = writer(tmp_path, tensorboard=True)
    w.record({"step": 3, "position": 24, "loss": 1.25})
    w.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in events.read_bytes() and b"position" not in events.read_bytes()
