"""A weight matrix, with its logical axes."""

import math

import jax
from flax import nnx

from jaxlm.mesh import Axes
from jaxlm.models.initial import normal
from jaxlm.ops.dense import dense


class Linear(nnx.Module):
    """x [..., *K] -> [..., *N] without bias; normal(0, gain / sqrt(fan-in)) at the start."""

    def __init__(
        self, shape: tuple[int, ...], axes: Axes, rngs: nnx.Rngs, in_dims: int = 1, gain: float = 1
    ):
        std = gain / math.sqrt(math.prod(shape[:in_dims]))
        self.kernel = nnx.Param(normal(rngs.params(), shape, std), axes=axes)
        self.axes = axes
        self.in_dims = in_dims

    def __call__(self, x: jax.Array) -> jax.Array:
        """The product, in the type of x."""
        return dense(x, self.kernel[...], self.axes, self.in_dims)
