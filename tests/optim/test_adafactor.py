"""Adafactor is Optax's, a layer's matrix at a time, once its parts are put together as ours are."""

import jax
import optax
import pytest
from jax import numpy as jnp

from jaxlm import optim
from jaxlm.config import OptimConfig
from tests import tiny
from tests.optim.leaves import trees


@pytest.mark.parametrize("b1", [0.0, 0.9])
def test_adafactor_equals_optax(b1):
    """A matrix, a heads-first kernel as the matrix that it is, and a norm; updates get clipped."""
    shapes = {"head": {"kernel": (8, 12)}, "out": {"kernel": (2, 3, 8)}, "norm": {"scale": (8,)}}
    ours = optim.build(OptimConfig(name="adafactor", b1=b1, b2=0.999, weight_decay=0.0))
    params, *grads = trees(6, shapes)
    grads = [jax.tree.map(lambda x, i=i: x * 3.0**i, g) for i, g in enumerate(grads)]
    theirs = optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=2),
        optax.clip_by_block_rms(1.0),
        optax.ema(b1) if b1 else optax.identity(),
        optax.scale(-0.1),
    )
    flatten = lambda tree: {**tree, "out": {"kernel": tree["out"]["kernel"].reshape(6, 8)}}  # noqa: E731
    update_ours, update_theirs = jax.jit(ours.update), jax.jit(theirs.update)
    our_state, their_state = ours.init(params), theirs.init(flatten(params))
    for g in grads:
        found, our_state = update_ours(g, our_state, params, lr=jnp.float32(0.1))
        expected, their_state = update_theirs(flatten(g), their_state, flatten(params))
        tiny.assert_trees_close(flatten(found), expected, 1e-5)


def test_the_second_moment_forgets_no_slower_than_b2():
    """After a large gradient and 200 without, what is left of its row is less than 0.9 ** 200."""
    optimizer, (params,) = optim.build(OptimConfig(name="adafactor", b2=0.9)), trees(1)

    @jax.jit
    def run(params):
        first = jax.tree.map(jnp.ones_like, params)
        opt_state = optimizer.update(first, optimizer.init(params), params, lr=0.0)[1]
        small = jax.tree.map(lambda x: jnp.full_like(x, 1e-10), params)
        step = lambda s, _: (optimizer.update(small, s, params, lr=0.0)[1], None)  # noqa: E731
        return jax.lax.scan(step, opt_state, length=200)[0].slots["row"]["head"]["kernel"]

    assert (run(params) < 0.9**200).all()
