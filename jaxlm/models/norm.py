"""RMSNorm (Zhang and Sennrich, 2019)."""

import jax
from flax import nnx
from jax import numpy as jnp

from jaxlm.mesh import Axes


class RMSNorm(nnx.Module):
    """x [..., D] / rms(x) * scale, computed in float32, returned in the type of x."""

    def __init__(self, size: int, eps: float, axes: Axes = ("norm",)):
        self.scale = nnx.Param(jnp.ones(size), axes=axes)
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """The normalised x."""
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        scale = self.scale[...].reshape((1,) * (x.ndim - 1) + (-1,))
        return (y * scale).astype(x.dtype)
