"""The plain step as an oracle: it shares no code with the trainer, and must train alike."""

import dataclasses

import jax
import numpy as np
import pytest

from bench import step
from jaxlm.config import Config
from jaxlm.data.synthetic import BOS_ID


def tiny(dtype: step.Dtype, layers: step.Layers) -> Config:
    cfg = step.config(dtype, layers)
    return dataclasses.replace(
        cfg,
        model=dataclasses.replace(
            cfg.model, vocab_size=250, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=48
        ),
        data=dataclasses.replace(cfg.data, seq_len=192),
        optim=dataclasses.replace(cfg.optim, lr=1e-2, clip_norm=0.5),
    )


def test_plain_and_trainer_agree_in_loss_and_parameters_after_three_updates():
    cfg = tiny("float32", "scan")
    with step.trainer(cfg) as trainer, trainer.loader() as loader:
        plain = step.Plain(trainer)
        before = plain.state.params["head"].copy()
        for _ in range(3):
            batch = next(loader)
            rows = np.asarray(batch.rows_BT)
            assert (rows[:, 1:] == BOS_ID).any(), "no document starts inside a row"
            theirs = plain.timed(rows).loss
            metrics = trainer.step(batch)
            assert float(metrics.grad_norm) > cfg.optim.clip_norm, "nothing is clipped"
            np.testing.assert_allclose(float(metrics.loss), theirs, rtol=1e-5)
        ours = step.as_plain(jax.device_get(trainer.state.params))
        theirs = jax.device_get(plain.state.params)
        assert np.abs(theirs["head"] - before).max() > cfg.optim.lr
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-4), ours, theirs)


def test_a_comparison_times_all_rounds_but_the_first_and_refuses_a_disagreement():
    with step.trainer(tiny("bfloat16", "unroll")) as trainer, trainer.loader() as loader:
        trainer.warm_up(next(loader))
        assert (trainer.steps, trainer.position) == (0, 0)
        plain = step.Plain(trainer)
        with trainer.loader() as again:
            times = step.compare(trainer, plain, again, seconds=0)
        assert [len(t) for t in times] == [step.AGREE_STEPS - 1] * 3
        assert all(d < t for d, t in zip(times.dispatch, times.trainer, strict=True))

        plain.state = plain.state._replace(params=jax.tree.map(lambda p: -p, plain.state.params))
        message = r"step 1: loss \d\.\d+ of the trainer, \d+\.\d+ of bench/plain.py, in bfloat16"
        with trainer.loader() as again, pytest.raises(step.Disagreement, match=message):
            step.compare(trainer, plain, again, seconds=0)


def test_the_measured_model_is_the_one_that_is_named():
    model = step.config("float32", "unroll").model
    sizes = (model.d_model, model.n_layers, model.n_heads, model.n_kv_heads, model.d_ff)
    assert (*sizes, model.vocab_size) == (512, 8, 8, 4, 1408, 32_000)
    assert not model.tied_embeddings
