"""Every product with a weight matrix: the cast and the sharding pins live here and nowhere else."""

import jax
from jax import numpy as jnp

from jaxlm.mesh import Axes, constrain

GATHERED = "embed"
"""The axis that fsdp splits: a weight is stored split along it and gathered to be used."""


def dense(x: jax.Array, kernel: jax.Array, axes: Axes, in_dims: int = 1) -> jax.Array:
    """x [..., *K] times kernel [*K, *N] -> [..., *N], in the type of x.

    `axes` are the kernel's logical axes; its first `in_dims` dimensions are contracted.
    """
    # Not reshaped to two dimensions: XLA's CPU backend takes that half again as long in bfloat16.
    return jnp.tensordot(x, gather(kernel, axes, x.dtype), in_dims)


def gather(kernel: jax.Array, axes: Axes, dtype: jnp.dtype) -> jax.Array:
    """The kernel cast, then gathered over fsdp; pinned on both sides of the gather.

    With one pin XLA is free to gather first and cast after, twice the bytes. What is gathered is
    the first dimension: a gradient that leaves along its last, TPU's compiler at times sums whole,
    twice the bytes again.
    """
    if GATHERED not in axes:
        return constrain(kernel.astype(dtype), *axes)
    dim = axes.index(GATHERED)
    others = axes[:dim] + axes[dim + 1 :]
    w = constrain(jnp.moveaxis(kernel.astype(dtype), dim, 0), GATHERED, *others)
    return jnp.moveaxis(constrain(w, None, *others), 0, dim)
