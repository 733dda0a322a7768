"""Every optimizer moves downhill with its state beside its parameters; AdamW is Optax's."""

from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from jaxlm import models, optim, state
from jaxlm.config import OptimConfig
from jaxlm.optim import OPTIMIZERS
from jaxlm.optim.masks import decays
from jaxlm.schema import ConfigError
from tests import tiny
from tests.tiny import MODEL

SHAPES = {"mlp": {"kernel": (8, 4)}, "norm": {"scale": (4,)}, "embedding": {"table": (16, 8)}}


def trees(count: int) -> list:
    """Random trees of `SHAPES`."""
    random = np.random.default_rng(0)
    make = lambda shape: jnp.asarray(random.normal(size=shape), jnp.float32)  # noqa: E731
    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    return [jax.tree.map(make, SHAPES, is_leaf=is_shape) for _ in range(count)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_goes_downhill(name):
    """To the least of a quadratic, in a few hundred steps."""
    target, params = trees(2)
    optimizer = optim.build(OptimConfig(name=name, weight_decay=0.0))
    opt_state = optimizer.init(params)

    @jax.jit
    def update(params, opt_state):
        grads = jax.tree.map(jnp.subtract, params, target)
        updates, opt_state = optimizer.update(grads, opt_state, params, lr=jnp.float32(0.05))
        return jax.tree.map(jnp.add, params, updates), opt_state

    for _ in range(300):
        params, opt_state = update(params, opt_state)
    tiny.assert_trees_close(params, target, 0.05)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_lies_with_its_parameter(name):
    model, optimizer = models.build(MODEL), optim.build(OptimConfig(name=name))
    where = state.shardings(model, optimizer, tiny.mesh((2, 2, 2)))
    shapes = jax.eval_shape(optimizer.init, model.abstract())
    places = {
        leaf.shape: place.spec
        for leaf, place in zip(*map(jax.tree.leaves, (model.abstract(), where.params)), strict=True)
    }
    for leaf, place in zip(*map(jax.tree.leaves, (shapes, where.opt_state)), strict=True):
        if leaf.shape:
            assert place.spec == places[leaf.shape]


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ConfigError, match=r"config.optim.name='lion': must be one of adamw"):
        optim.build(OptimConfig(name="lion"))


def test_adamw_equals_optax():
    """Over 5 steps, another learning rate at each, decay on what is no norm and no table."""
    cfg = OptimConfig(weight_decay=0.2, b1=0.8, b2=0.9, eps=1e-6)
    rates = [0.1, 0.2, 0.3, 0.02, 0.01]
    ours = optim.build(cfg)
    theirs = optax.adamw(
        lambda count: jnp.array(rates)[count],
        cfg.b1,
        cfg.b2,
        cfg.eps,
        weight_decay=cfg.weight_decay,
        mask={"mlp": {"kernel": True}, "norm": {"scale": False}, "embedding": {"table": False}},
    )
    params, *grads = trees(6)
    expected, our_state, their_state = params, ours.init(params), theirs.init(params)
    for g, rate in zip(grads, rates, strict=True):
        updates, our_state = ours.update(g, our_state, params, lr=jnp.float32(rate))
        params = jax.tree.map(jnp.add, params, updates)
        updates, their_state = theirs.update(g, their_state, expected)
        expected = jax.tree.map(jnp.add, expected, updates)
        tiny.assert_trees_close(params, expected, 1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_decay_leaves_exactly_norms_and_embeddings_alone(tied):
    model = models.build(replace(MODEL, tied_embeddings=tied)).abstract()
    kept = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(model)
        if not decays(path)
    }
    assert kept == {
        "embedding/table",
        "norm/scale",
        "blocks/attention_norm/scale",
        "blocks/mlp_norm/scale",
        "blocks/attention/query_norm/scale",
        "blocks/attention/key_norm/scale",
    }
