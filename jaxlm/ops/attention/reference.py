"""Attention in plain JAX: the oracle that every other kernel is tested against.

Shapes: B rows, T queries, S keys, H query heads, N key-value heads, G = H / N, K head width.
"""

import jax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxlm.ops.attention.kernel import OUT, Attend, Kernel

MASKED = -1e30
"""Score of a pair that may not attend; finite, so that a row without any pair gives no NaN."""


def make(segments_BT: jax.Array) -> Attend:
    """Attention over rows of documents."""
    mask_BTT = document_mask(segments_BT)

    def attend(q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array) -> jax.Array:
        return checkpoint_name(attention(q_BTHK, k_BTNK, v_BTNK, mask_BTT), OUT)

    return attend


def attention(
    q_BTHK: jax.Array, k_BSNK: jax.Array, v_BSNK: jax.Array, mask_BTS: jax.Array
) -> jax.Array:
    """Softmax attention in grouped-query form -> [B, T, H, K]; the softmax is float32.

    `mask_BTS` is true where a query may see a key.
    """
    b, t, h, k = q_BTHK.shape
    n = k_BSNK.shape[2]
    q_BTNGK = (q_BTHK * k**-0.5).reshape(b, t, n, h // n, k)
    s_BNGTS = jnp.einsum("btngk,bsnk->bngts", q_BTNGK, k_BSNK, preferred_element_type=jnp.float32)
    s_BNGTS = jnp.where(mask_BTS[:, None, None], s_BNGTS, MASKED)
    p_BNGTS = jax.nn.softmax(s_BNGTS, axis=-1).astype(v_BSNK.dtype)
    return jnp.einsum("bngts,bsnk->btngk", p_BNGTS, v_BSNK).reshape(b, t, h, k)


def document_mask(segments_BT: jax.Array) -> jax.Array:
    """bool [B, T, T]: a token sees itself and what came before it in its own document."""
    t = segments_BT.shape[1]
    causal_TT = jnp.arange(t)[:, None] >= jnp.arange(t)[None, :]
    same_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
    return causal_TT[None] & same_BTT


KERNEL = Kernel(
    make,
    platforms=("cpu", "tpu", "cuda"),
    about="plain JAX, which holds the scores of all T x T pairs of a head in memory",
)
