"""Attention for CPUs: all products in the one form that their matrix units take, and a gradient by
hand.

What autodiff makes of the reference, XLA's CPU compiler multiplies in float32, and it copies the
scores of all pairs to other layouts. Here only queries, keys, values and their gradients are turned
(`ops.dense.turned`), and most of what lies above the diagonal is left out.

Shapes: B rows, T queries and keys, H query heads, N key-value heads, G = H / N, K head width; of a
block t queries, R = G x t of them a group, S keys up to its last query.
"""

import math

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxlm.ops.attention.kernel import OUT, Attend, Kernel
from jaxlm.ops.attention.reference import MASKED, document_mask
from jaxlm.ops.dense import laid_out, turned
from jaxlm.ops.passes import rounded

BLOCKS = 4
"""Of a row's queries: 5/8 of the pairs are computed. With 8 no less time, and more to compile."""


def make(segments_BT: jax.Array) -> Attend:
    """Attention over rows of documents."""
    mask_BTT = document_mask(segments_BT)

    def attend(q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array) -> jax.Array:
        b, t, h, k = q_BTHK.shape
        n = k_BTNK.shape[2]
        q_BNGTK = (q_BTHK * k**-0.5).reshape(b, t, n, h // n, k).transpose(0, 2, 3, 1, 4)
        k_BNTK, v_BNTK = k_BTNK.swapaxes(1, 2), v_BTNK.swapaxes(1, 2)
        width = t // math.gcd(BLOCKS, t)
        blocks = []
        for end in range(width, t + 1, width):
            here = slice(end - width, end)
            q_BNRK = q_BNGTK[:, :, :, here].reshape(b, n, -1, k)
            mask_B1RS = jnp.tile(mask_BTT[:, here, :end], (1, h // n, 1))[:, None]
            o_BNRK = _attend(q_BNRK, k_BNTK[:, :, :end], v_BNTK[:, :, :end], mask_B1RS)
            blocks.append(o_BNRK.reshape(b, n, h // n, width, k))
        o_BNGTK = jnp.concatenate(blocks, axis=3)
        return checkpoint_name(o_BNGTK.transpose(0, 3, 1, 2, 4).reshape(b, t, h, k), OUT)

    return attend


@jax.custom_vjp
def _attend(
    q_BNRK: jax.Array, k_BNSK: jax.Array, v_BNSK: jax.Array, mask_B1RS: jax.Array
) -> jax.Array:
    """[B, N, R, K]; the queries are scaled."""
    return _forward(q_BNRK, k_BNSK, v_BNSK, mask_B1RS)[0]


def _forward(
    q_BNRK: jax.Array, k_BNSK: jax.Array, v_BNSK: jax.Array, mask_B1RS: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    q_BNRK, k_BNSK, v_BNSK = laid_out(q_BNRK), laid_out(k_BNSK), laid_out(v_BNSK)
    s_BNRS = jnp.matmul(q_BNRK, turned(k_BNSK), preferred_element_type=jnp.float32)
    s_BNRS = jnp.where(mask_B1RS, s_BNRS, MASKED)
    p_BNRS = laid_out(rounded(jnp.exp(s_BNRS - s_BNRS.max(-1, keepdims=True)), v_BNSK.dtype))
    sum_BNR1 = jax.lax.optimization_barrier(p_BNRS).astype(jnp.float32).sum(-1, keepdims=True)
    o_BNRK = jnp.matmul(p_BNRS, v_BNSK, preferred_element_type=jnp.float32) / sum_BNR1
    o_BNRK = rounded(o_BNRK, v_BNSK.dtype)
    return o_BNRK, (q_BNRK, k_BNSK, v_BNSK, p_BNRS, sum_BNR1, o_BNRK)


def _backward(saved: tuple[jax.Array, ...], g_BNRK: jax.Array) -> tuple[jax.Array | None, ...]:
    q_BNRK, k_BNSK, v_BNSK, p_BNRS, sum_BNR1, o_BNRK = saved
    g_BNRK = g_BNRK.astype(jnp.float32) / sum_BNR1
    own_BNR1 = (g_BNRK * o_BNRK.astype(jnp.float32)).sum(-1, keepdims=True)
    g_BNRK = rounded(g_BNRK, q_BNRK.dtype)
    g_BNRS = jnp.matmul(g_BNRK, turned(v_BNSK), preferred_element_type=jnp.float32)
    ds_BNRS = rounded(p_BNRS.astype(jnp.float32) * (g_BNRS - own_BNR1), q_BNRK.dtype)
    dk_BNSK, dv_BNSK = turned(turned(q_BNRK) @ ds_BNRS), turned(turned(g_BNRK) @ p_BNRS)
    return ds_BNRS @ k_BNSK, dk_BNSK, dv_BNSK, None


_attend.defvjp(_forward, _backward)

KERNEL = Kernel(
    make,
    platforms=("cpu",),
    about="laid out for the matrix units of a CPU; holds the scores of the pairs of a head",
)
