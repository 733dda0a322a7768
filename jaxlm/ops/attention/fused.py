"""What all fused kernels share: a gradient with named residuals, and each device's own shard.

A kernel is two functions on the rows and heads that one device holds. Forward and backward are
two `jax.shard_map`s with the gradient rule around them, so that what is saved in between are whole
arrays with names, which a checkpoint policy can keep or send to host memory.

Shapes: B rows, T tokens, H query heads, N key-value heads, K head width.
"""

from collections.abc import Callable
from functools import partial
from math import gcd
from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxlm import mesh as mesh_lib
from jaxlm.ops.attention.kernel import LSE, OUT, Attend

type Axes = tuple[str | None, ...]

Q_AXES: Axes = ("batch", None, "heads", None)
KV_AXES: Axes = ("batch", None, "kv_heads", None)
LSE_AXES: Axes = ("batch", "heads", None)
ROW_AXES: Axes = ("batch", None)


class Passes(NamedTuple):
    """A kernel on one device; of the same attention, so that one kernel's may stand for another's.

    The log-sum-exp is natural, of the scaled scores, float32 [B, H, T].
    """

    forward: Callable[..., tuple[jax.Array, jax.Array]]
    """(q_BTHK, k_BTNK, v_BTNK, segments_BT) -> (out_BTHK, lse_BHT)"""
    backward: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
    """(q_BTHK, k_BTNK, v_BTNK, segments_BT, out_BTHK, lse_BHT, d_out_BTHK) -> (dq, dk, dv)"""


def make(passes: Passes, segments_BT: jax.Array) -> Attend:
    """Attention over rows of documents by a kernel, on the mesh in force."""

    def attend(q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array) -> jax.Array:
        times = _repeats(q_BTHK.shape[2], k_BTNK.shape[2])
        if times > 1:
            k_BTNK, v_BTNK = (jnp.repeat(x, times, axis=2) for x in (k_BTNK, v_BTNK))
        return _attention(passes, q_BTHK, k_BTNK, v_BTNK, segments_BT)

    return attend


def _repeats(heads: int, kv_heads: int) -> int:
    """How often each key-value head must stand for the tensor axis to split them evenly.

    Repeated, they still divide the query heads, so every device finds the heads that its queries
    use among its own.
    """
    ways = mesh_lib.sizes_in_force().get("tensor", 1)
    if heads % ways:  # the mesh's own rule refuses it, with the numbers
        return 1
    least = ways // gcd(kv_heads, ways)
    group = heads // kv_heads
    return next(n for n in range(least, group + 1) if n % least == 0 and group % n == 0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    passes: Passes,
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    segments_BT: jax.Array,
) -> jax.Array:
    return _forward(passes, q_BTHK, k_BTNK, v_BTNK, segments_BT)[0]


def _attention_forward(
    passes: Passes,
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    segments_BT: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    out_BTHK, lse_BHT = _forward(passes, q_BTHK, k_BTNK, v_BTNK, segments_BT)
    out_BTHK, lse_BHT = checkpoint_name(out_BTHK, OUT), checkpoint_name(lse_BHT, LSE)
    return out_BTHK, (q_BTHK, k_BTNK, v_BTNK, segments_BT, out_BTHK, lse_BHT)


def _attention_backward(
    passes: Passes, saved: tuple[jax.Array, ...], d_out_BTHK: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    backward = _on_shards(
        passes.backward,
        (Q_AXES, KV_AXES, KV_AXES, ROW_AXES, Q_AXES, LSE_AXES, Q_AXES),
        (Q_AXES, KV_AXES, KV_AXES),
        (*saved, d_out_BTHK),
    )
    return *backward(*saved, d_out_BTHK), None


_attention.defvjp(_attention_forward, _attention_backward)


def _forward(passes: Passes, *inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    axes = (Q_AXES, KV_AXES, KV_AXES, ROW_AXES)
    return _on_shards(passes.forward, axes, (Q_AXES, LSE_AXES), inputs)(*inputs)


def _on_shards(
    function: Callable, in_axes: tuple[Axes, ...], out_axes: tuple[Axes, ...], inputs: tuple
) -> Callable:
    """`function` on each device's own part, on the mesh in force.

    Axes over which an enclosing `jax.shard_map` has already split the arrays are left alone.
    """
    sizes = mesh_lib.sizes_in_force()
    if not sizes or jax.sharding.get_abstract_mesh().size == 1:
        return function
    q_BTHK, k_BTNK = inputs[:2]
    b, t, h, _ = q_BTHK.shape
    shapes = {Q_AXES: q_BTHK.shape, KV_AXES: k_BTNK.shape, ROW_AXES: (b, t), LSE_AXES: (b, h, t)}
    spec = lambda axes: mesh_lib.spec(sizes, axes, shapes[axes])  # noqa: E731
    return jax.shard_map(
        function,
        in_specs=tuple(map(spec, in_axes)),
        out_specs=tuple(map(spec, out_axes)),
        axis_names=set(sizes),
        check_vma=False,  # kernels do not say over which axes their results vary
    )
