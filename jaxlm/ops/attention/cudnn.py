"""Attention for Hopper and newer GPUs by cuDNN, in its packed layout.

cuDNN then takes, instead of a batch of rows, a list of documents: where each begins in the buffer
of q, k or v, and how long it is. The list has a fixed length, `capacity`; rows with more documents
together than that are computed by `pallas`, so that no document is ever joined to another.

Documents are numbered through the rows of a device: D of them at most. The log-sum-exp comes from
cuDNN document by document, [D, H, T], and is kept token by token. JAX's own entry to this asks the
device of the process for its compute capability; here the kernel's table has settled that, so that
a program can be compiled without the device.

Shapes: B rows, T tokens, H query heads, N key-value heads, K head width, D documents.
"""

import inspect
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from jax._src.cudnn import fused_attention_stablehlo as sdpa

from jaxlm.ops.attention import fused, pallas, spans
from jaxlm.ops.attention.fused import Passes
from jaxlm.ops.attention.kernel import Attend, Call, Kernel
from jaxlm.schema import ConfigError

TOKENS_A_DOCUMENT = 256
"""Mean length for which the list has room. cuDNN's work space grows with its length: each document
has room for a whole row."""

NO_SCORE_MODIFIER: dict[str, Any] = {
    name: None
    for name in ("score_mod_name", "score_mod_jaxpr")
    if name in inspect.signature(sdpa._dot_product_attention_fwd_cuda_lowering).parameters
}
"""JAX 0.11 has none to leave out."""


class Documents(NamedTuple):
    """The documents of some rows, in order; those that are not there have length 0."""

    starts_D1: jax.Array
    """int32, in tokens from the first row's start; from the last document's end on, B x T."""
    lengths_D: jax.Array
    """int32."""
    number_BT: jax.Array
    """int32: which document a token is of."""
    total: jax.Array
    """How many there are; more than D means that the list is not whole."""


def capacity(rows: int, seq_len: int) -> int:
    """Documents that the list of so many rows has room for: D."""
    return rows * max(2, seq_len // TOKENS_A_DOCUMENT)


def documents(segments_BT: jax.Array) -> Documents:
    """The list of the documents in rows of segments."""
    b, t = segments_BT.shape
    room = capacity(b, t)
    place_BT = jnp.arange(t, dtype=jnp.int32)[None] + t * jnp.arange(b, dtype=jnp.int32)[:, None]
    first_X = (spans.starts(segments_BT) == jnp.arange(t)[None]).reshape(-1)
    number_X = jnp.cumsum(first_X.astype(jnp.int32)) - 1
    starts_D1 = jnp.full(room + 1, b * t, jnp.int32)
    # What is beyond the end of the list, or no document's first token, is dropped.
    to_X = jnp.where(first_X, number_X, room + 1)
    starts_D1 = starts_D1.at[to_X].set(place_BT.reshape(-1), mode="drop")
    return Documents(starts_D1, jnp.diff(starts_D1), number_X.reshape(b, t), number_X[-1] + 1)


def by_token(lse_DHT: jax.Array, found: Documents) -> jax.Array:
    """[D, H, T], of each document from its own start, -> [B, H, T]."""
    within_BT = _within(found)
    lse_BTH = lse_DHT[found.number_BT, :, within_BT]
    return lse_BTH.swapaxes(1, 2)


def by_document(lse_BHT: jax.Array, found: Documents) -> jax.Array:
    """[B, H, T] -> [D, H, T], of each document from its own start."""
    b, h, t = lse_BHT.shape
    places_DT = jnp.minimum(found.starts_D1[:-1, None] + jnp.arange(t)[None], b * t - 1)
    return lse_BHT.swapaxes(0, 1).reshape(h, b * t)[:, places_DT].swapaxes(0, 1)


def _within(found: Documents) -> jax.Array:
    b, t = found.number_BT.shape
    place_BT = jnp.arange(b * t, dtype=jnp.int32).reshape(b, t)
    return place_BT - found.starts_D1[found.number_BT]


def make(segments_BT: jax.Array) -> Attend:
    """Attention over rows of documents."""
    return fused.make(Passes(forward, backward), segments_BT)


def forward(
    q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array, segments_BT: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(out [B, T, H, K], natural log-sum-exp of the scaled scores, float32 [B, H, T])."""
    found = documents(segments_BT)

    def packed(q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array) -> tuple:
        out_BTHK, lse_DHT = sdpa._dot_product_attention_fwd_p.bind(
            *(q_BTHK, k_BTNK, v_BTNK),
            *_operands(q_BTHK, k_BTNK, found),
            **_parameters(q_BTHK),
            is_training=True,
        )
        return out_BTHK, by_token(lse_DHT, found)

    def many(q_BTHK: jax.Array, k_BTNK: jax.Array, v_BTNK: jax.Array) -> tuple:
        return pallas.forward(q_BTHK, k_BTNK, v_BTNK, segments_BT)

    return jax.lax.cond(_fits(found), packed, many, q_BTHK, k_BTNK, v_BTNK)


def backward(
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    segments_BT: jax.Array,
    out_BTHK: jax.Array,
    lse_BHT: jax.Array,
    d_out_BTHK: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v, in their shapes and types."""
    found = documents(segments_BT)

    def packed(
        q_BTHK: jax.Array,
        k_BTNK: jax.Array,
        v_BTNK: jax.Array,
        out_BTHK: jax.Array,
        lse_BHT: jax.Array,
        d_out_BTHK: jax.Array,
    ) -> tuple:
        return tuple(
            sdpa._dot_product_attention_bwd_p.bind(
                *(q_BTHK, k_BTNK, v_BTNK),
                *_operands(q_BTHK, k_BTNK, found),
                *(by_document(lse_BHT, found), out_BTHK, d_out_BTHK),
                **_parameters(q_BTHK),
            )
        )

    def many(
        q_BTHK: jax.Array,
        k_BTNK: jax.Array,
        v_BTNK: jax.Array,
        out_BTHK: jax.Array,
        lse_BHT: jax.Array,
        d_out_BTHK: jax.Array,
    ) -> tuple:
        return pallas.backward(q_BTHK, k_BTNK, v_BTNK, segments_BT, out_BTHK, lse_BHT, d_out_BTHK)

    inputs = (q_BTHK, k_BTNK, v_BTNK, out_BTHK, lse_BHT, d_out_BTHK)
    return jax.lax.cond(_fits(found), packed, many, *inputs)


def _fits(found: Documents) -> jax.Array:
    return found.total <= found.lengths_D.shape[0]


def _operands(q_BTHK: jax.Array, k_BTNK: jax.Array, found: Documents) -> tuple[jax.Array, ...]:
    """Operands of cuDNN's call after q, k and v: no bias, the list, no pages.

    JAX derives the room for documents from the shapes, so they go by rows, which mean nothing.
    Offsets count elements; cuDNN reads the first D + 1 of them.
    """
    b, t, h, k = q_BTHK.shape
    if b * t * h * k >= 2**31:
        raise ConfigError(
            f"config.model.attention='cudnn': {b} rows of {t} tokens with {h} heads of {k} have "
            f"{b * t * h * k} elements, and its offsets are 32 bits: fewer than {2**31}. Set "
            "config.train.rows_per_device lower, or take attention='pallas'"
        )
    per_row = found.lengths_D.shape[0] // b
    lengths = found.lengths_D.reshape(b, per_row)
    spare = jnp.broadcast_to(found.starts_D1[-1:], (b - 1,))
    offsets = jnp.concatenate([found.starts_D1, spare]).reshape(b, per_row + 1)
    unused = jnp.zeros(0, q_BTHK.dtype)
    q_offsets, kv_offsets = offsets * (h * k), offsets * (k_BTNK.shape[2] * k)
    return unused, lengths, lengths, q_offsets, kv_offsets, unused, unused


def _parameters(q_BTHK: jax.Array) -> dict[str, Any]:
    return {
        "scale": q_BTHK.shape[-1] ** -0.5,
        "seed": 0,
        "dropout_rate": 0.0,
        "variadic_args": (False, False),
        "mask_type": sdpa.MaskType.PADDING_CAUSAL,
        "layout": sdpa.AttentionLayout.BTNH.value,
        "sliding_window_length": None,
        **NO_SCORE_MODIFIER,
    }


KERNEL = Kernel(
    make,
    platforms=("cuda",),
    about="cuDNN's packed layout, in blocks, none of them between documents",
    capability=(9, 0),
    dtypes=("bfloat16",),
    head_sizes=pallas.KERNEL.head_sizes,
    seq_multiple=pallas.KERNEL.seq_multiple,
    calls=(
        Call(
            "__cudnn$fmhaSoftmax",
            "",
            lambda operands, results: pallas.flops(2, operands),
            pallas.once,
        ),
        Call(
            "__cudnn$fmhaSoftmaxBackward",
            "",
            lambda operands, results: pallas.flops(5, operands),
            pallas.once,
        ),
    ),
)
"""Each document is counted as if it filled its row. cuDNN's own work space is not in the memory of
a program that was compiled without the device."""
