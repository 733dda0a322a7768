"""Sequence parallelism: what lies between the products is split along the sequence over `tensor`.

A layer's norms, residuals and dropout then take 1 / tensor of the memory and the work, for the
same traffic: an all-gather before the products and a reduce-scatter after them in place of an
all-reduce (Korthikanti et al., 2022). A sequence that tensor does not divide, such as the single
token of a decoding step, is left whole.

The two functions are each other's gradient, by hand: a constraint transposes to itself, which
would have the compiler sum the gradient of `gather` whole on each device, and gather that of
`scatter` once for each product that takes it.
"""

import jax

from jaxlm.mesh import constrain


@jax.custom_vjp
def gather(x_BTD: jax.Array) -> jax.Array:
    """A split x, whole on each device of the tensor axis."""
    return _whole(x_BTD)


@jax.custom_vjp
def scatter(x_BTD: jax.Array) -> jax.Array:
    """The sum of what the devices of the tensor axis hold of x; each keeps its part of T."""
    return _split(x_BTD)


def _whole(x_BTD: jax.Array) -> jax.Array:
    # Pinned on both sides: a cast or norm before the gather stays before it.
    return constrain(_split(x_BTD), "batch", None, None)


def _split(x_BTD: jax.Array) -> jax.Array:
    return constrain(x_BTD, "batch", "seq", None)


gather.defvjp(lambda x_BTD: (_whole(x_BTD), None), lambda _, g_BTD: (_split(g_BTD),))
scatter.defvjp(lambda x_BTD: (_split(x_BTD), None), lambda _, g_BTD: (_whole(g_BTD),))
