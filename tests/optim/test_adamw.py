"""AdamW is Optax's."""

import jax
import optax
from jax import numpy as jnp

from jaxlm import optim
from jaxlm.config import OptimConfig
from jaxlm.optim.masks import decays
from jaxlm.optim.paths import flat, nested
from tests import tiny
from tests.optim.leaves import trees


def test_adamw_equals_optax():
    """Over 5 steps, another learning rate at each, decay on what is no norm and no table."""
    cfg = OptimConfig(weight_decay=0.2, b1=0.8, b2=0.9, eps=1e-6)
    rates = [0.1, 0.2, 0.3, 0.02, 0.01]
    ours = optim.build(cfg)
    params, *grads = trees(6)
    theirs = optax.adamw(
        lambda count: jnp.array(rates)[count],
        cfg.b1,
        cfg.b2,
        cfg.eps,
        weight_decay=cfg.weight_decay,
        mask=nested({path: decays(path) for path in flat(params)}),
    )
    update_ours, update_theirs = jax.jit(ours.update), jax.jit(theirs.update)
    expected, our_state, their_state = params, ours.init(params), theirs.init(params)
    for g, rate in zip(grads, rates, strict=True):
        updates, our_state = update_ours(g, our_state, params, lr=jnp.float32(rate))
        params = jax.tree.map(jnp.add, params, updates)
        updates, their_state = update_theirs(g, their_state, expected)
        expected = jax.tree.map(jnp.add, expected, updates)
        tiny.assert_trees_close(params, expected, 1e-6)
