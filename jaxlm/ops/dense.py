"""Every product with a weight matrix: the cast and the sharding pins live here and nowhere else."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from jaxlm.mesh import Axes, constrain, platform_in_force

GATHERED = "embed"
"""The axis that fsdp splits: a weight is stored split along it and gathered to be used."""


class Dense(NamedTuple):
    """A way to compute products."""

    multiply: Callable[[jax.Array, jax.Array, int], jax.Array]
    """x [..., *K], w [*K, *N] of the same type, how many dimensions K has -> [..., *N]."""
    about: str
    """A line for the start of a run."""


def dense(x: jax.Array, kernel: jax.Array, axes: Axes, in_dims: int = 1) -> jax.Array:
    """x [..., *K] times kernel [*K, *N] -> [..., *N], in the type of x.

    `axes` are the kernel's logical axes; its first `in_dims` dimensions are contracted.
    """
    multiply = DENSE[choose(platform_in_force(), x.dtype)].multiply
    return multiply(x, gather(kernel, axes, x.dtype), in_dims)


def dense_of_shards(x_sBTD: jax.Array, w_Dsv: jax.Array) -> jax.Array:
    """Each shard's x times its own columns -> [s, B, T, v]; the weights are gathered already."""
    name = choose(platform_in_force(), x_sBTD.dtype)
    if name == "plain":
        return jnp.einsum("sbtd,dsv->sbtv", x_sBTD, w_Dsv)
    shards = range(len(x_sBTD))
    return jnp.stack([DENSE[name].multiply(x_sBTD[s], w_Dsv[:, s], 1) for s in shards])


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


def choose(platform: str, dtype: jnp.dtype) -> str:
    """The key of `DENSE` for products of a type on a platform, as `platform_in_force` names it."""
    return "rows" if platform == "cpu" and dtype in (jnp.bfloat16, jnp.float32) else "plain"


def describe(platform: str, dtype: jnp.dtype) -> str:
    """The line that says how a run computes products."""
    name = choose(platform, dtype)
    return f"products: {name} ({DENSE[name].about})"


# ---- row by row ----------------------------------------------------------------------------------
#
# XLA's CPU compiler gives a product to the matrix units (AMX) in the form [m, k] x [k, n] alone,
# all three row by row in memory; other forms it computes in float32. What is transposed to have
# that form it makes a part of the product again, unless the layout is constrained.


def laid_out(x: jax.Array) -> jax.Array:
    """x, row by row in memory."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def turned(x: jax.Array) -> jax.Array:
    """x [..., M, N] as [..., N, M], row by row in memory too."""
    return laid_out(laid_out(x).swapaxes(-1, -2))


def _by_rows(x: jax.Array, w: jax.Array, in_dims: int) -> jax.Array:
    rows, columns = x.shape[: x.ndim - in_dims], w.shape[in_dims:]
    k = math.prod(w.shape[:in_dims])
    return _product(x.reshape(-1, k), w.reshape(k, -1)).reshape(*rows, *columns)


@jax.custom_vjp
def _product(x_MK: jax.Array, w_KN: jax.Array) -> jax.Array:
    return laid_out(laid_out(x_MK) @ laid_out(w_KN))


def _forward(x_MK: jax.Array, w_KN: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x_MK, w_KN), (x_MK, w_KN)


def _backward(saved: tuple[jax.Array, jax.Array], g_MN: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_MK, w_KN = saved
    g_MN = laid_out(g_MN)
    return laid_out(g_MN @ turned(w_KN)), laid_out(turned(x_MK) @ g_MN)


_product.defvjp(_forward, _backward)

DENSE: dict[str, Dense] = {
    # Not reshaped to two dimensions, which would join those that a mesh splits.
    "plain": Dense(jnp.tensordot, "as the compiler lays them out"),
    "rows": Dense(
        _by_rows,
        "all operands row by row, for the matrix units of a CPU",
    ),
}
"""Ways to compute products: a new one is a line here, and one in `choose`."""
