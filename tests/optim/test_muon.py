"""Muon is Optax's on the matrices of the layers, AdamW on the rest."""

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp
from optax.contrib import MuonDimensionNumbers

from jaxlm import optim
from jaxlm.config import OptimConfig
from jaxlm.optim import newton_schulz
from jaxlm.optim.masks import hidden_matrix, input_dims
from jaxlm.optim.paths import flat, nested
from tests import tiny
from tests.optim.leaves import trees


def dimensions(path: tuple[str, ...], ndim: int) -> MuonDimensionNumbers:
    split = 1 + input_dims(path)
    return MuonDimensionNumbers(tuple(range(1, split)), tuple(range(split, ndim)))


def test_muon_equals_optax(monkeypatch):
    """Over 3 steps, in float32; bfloat16 and five Newton-Schulz steps turn 1e-2 into 6e-2."""
    monkeypatch.setattr(newton_schulz, "DTYPE", jnp.float32)
    cfg = OptimConfig(name="muon", weight_decay=0.2)
    params, *grads = trees(4)
    matrices = {path: dimensions(path, p.ndim) for path, p in flat(params).items()}
    theirs = optax.contrib.muon(
        0.1,
        beta=cfg.b1,
        weight_decay=cfg.weight_decay,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=nested(
            {path: found if hidden_matrix(path) else None for path, found in matrices.items()}
        ),
        adam_b1=cfg.b1,
        adam_b2=cfg.b2,
        adam_eps_root=0.0,
        adam_weight_decay=0.0,
    )
    ours = optim.build(cfg)
    adamw = optim.build(OptimConfig(weight_decay=cfg.weight_decay))
    update_ours, update_theirs = jax.jit(ours.update), jax.jit(theirs.update)
    states = ours.init(params), theirs.init(params), adamw.init(params)
    for g in grads:
        found, ours_next = update_ours(g, states[0], params, lr=jnp.float32(0.1))
        expected, theirs_next = update_theirs(g, states[1], params)
        plain, adamw_next = jax.jit(adamw.update)(g, states[2], params, lr=jnp.float32(0.1))
        states = ours_next, theirs_next, adamw_next
        for path, update in flat(found).items():
            if hidden_matrix(path):
                tiny.assert_trees_close(update, flat(expected)[path], 1e-4)
            else:
                tiny.assert_trees_equal(update, flat(plain)[path])


@pytest.mark.parametrize("shape", [(2, 16, 48), (2, 48, 16), (2, 32, 32)])
def test_singular_values_come_near_one(shape):
    """From three orders of magnitude apart."""
    random = np.random.default_rng(0)
    u_Lmk, _, v_Lkn = np.linalg.svd(random.normal(size=shape), full_matrices=False)
    spread = np.logspace(-3, 0, min(shape[1:])) if shape[1] != shape[2] else np.ones(32)
    x_Lmn = jnp.asarray((u_Lmk * spread) @ v_Lkn, jnp.float32)
    found = np.linalg.svd(np.asarray(jax.jit(newton_schulz.orthogonal)(x_Lmn)), compute_uv=False)
    assert found.max() < 1.3
    assert (found > 0.5).mean() > 0.6


def test_an_update_has_the_root_mean_square_of_adamws():
    """About 0.2 of the learning rate, tall or wide."""
    params, g = trees(2)
    ours = optim.build(OptimConfig(name="muon", weight_decay=0.0))
    updates, _ = jax.jit(ours.update)(g, ours.init(params), params, lr=jnp.float32(1))
    for path, update in flat(updates).items():
        if hidden_matrix(path):
            assert 0.12 < float(jnp.sqrt(jnp.mean(update**2))) < 0.26
