"""Activations between the products lie split along the sequence, and so do their gradients."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm.ops import sequence
from tests import tiny
from tests.jaxprs import equations

WHOLE = P(("data", "fsdp"), None, None)
SPLIT = P(("data", "fsdp"), ("tensor",), None)


def pins(function, x) -> list[P]:
    """The specs of the sharding constraints in a function's program, in order."""
    return [
        equation.params["sharding"].spec
        for equation, _ in equations(jax.make_jaxpr(function)(x).jaxpr)
        if equation.primitive.name == "sharding_constraint"
    ]


@pytest.mark.parametrize(
    ("function", "there", "back"),
    [
        (sequence.gather, [SPLIT, WHOLE], [SPLIT]),
        (sequence.scatter, [SPLIT], [SPLIT, WHOLE]),
    ],
)
def test_each_is_the_others_gradient(function, there, back):
    x = jnp.ones((8, 4, 3))
    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        assert pins(function, x) == there
        assert pins(lambda x: jax.vjp(function, x)[1](x), x) == there + back


@pytest.mark.parametrize("function", [sequence.gather, sequence.scatter])
def test_values_and_gradients_are_left_alone(function):
    x = np.random.default_rng(0).normal(size=(8, 4, 3)).astype(np.float32)
    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        y, slope = jax.jit(jax.value_and_grad(lambda x: (function(x) ** 2).sum()))(x)
    np.testing.assert_allclose(y, (x**2).sum(), rtol=1e-6)
    np.testing.assert_array_equal(slope, 2 * x)


@pytest.mark.parametrize("function", [sequence.gather, sequence.scatter])
def test_one_token_is_not_split(function):
    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        assert set(pins(function, jnp.ones((8, 1, 3)))) == {WHOLE}
