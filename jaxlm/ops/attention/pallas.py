"""Attention for GPUs in Pallas (Triton): FlashAttention-2 that skips blocks between documents.

A program owns a block of queries, or of keys in the gradient of keys and values, and goes through
the blocks of the other side that it has a pair with: those between the start of its first query's
document and its own end. A packed row so costs the sum over its documents, not the whole triangle.
Query heads share their key-value head without a copy of it.

Shapes: B rows, T tokens, H query heads, N key-value heads, G = H / N, K head width; q and s are
places in a block of queries and of keys. Source: Dao, FlashAttention-2, 2023, sections 3.1 and 3.2.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxlm.ops.attention import fused, spans
from jaxlm.ops.attention.fused import Passes
from jaxlm.ops.attention.kernel import Attend, Call, Kernel, Shape, pairs

MASKED = -1e30
"""Score of a pair that may not attend; finite, so that a block without any pair gives no NaN."""

LOG2_E = math.log2(math.e)
"""exp2 is what the hardware has."""


class Blocks(NamedTuple):
    """Tokens that a program takes at once."""

    own: int
    """Of the side that it owns."""
    other: int
    """Of the side that it goes through."""
    warps: int


STAGES = 3
"""Of the software pipeline: as many as the shared memory of an A100 holds at each head size."""


def make(segments_BT: jax.Array, interpret: bool = False) -> Attend:
    """Attention over rows of documents; `interpret` runs the kernels on the CPU."""
    return fused.make(passes(interpret), segments_BT)


def passes(interpret: bool = False) -> Passes:
    """The kernels on one device."""
    return Passes(partial(forward, interpret=interpret), partial(backward, interpret=interpret))


def forward(
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    segments_BT: jax.Array,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """(out [B, T, H, K], natural log-sum-exp of the scaled scores, float32 [B, H, T])."""
    b, t, h, k = q_BTHK.shape
    group = h // k_BTNK.shape[2]
    blocks = _blocks(q_BTHK, Blocks(128, 64, 4 if k <= 64 else 8))
    mine = pl.BlockSpec((None, blocks.own, None, k), lambda i, b, h: (b, i, h, 0))
    keys = pl.BlockSpec((None, t, None, k), lambda i, b, h: (b, 0, h // group, 0))
    row = pl.BlockSpec((None, blocks.own), lambda i, b, h: (b, i))
    lse = pl.BlockSpec((None, None, blocks.own), lambda i, b, h: (b, h, i))
    return pl.pallas_call(
        partial(_forward_kernel, blocks=blocks),
        grid=(t // blocks.own, b, h),
        in_specs=[mine, keys, keys, row],
        out_specs=[mine, lse],
        out_shape=[q_BTHK, jax.ShapeDtypeStruct((b, h, t), jnp.float32)],
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=STAGES),
        interpret=interpret,
        name="attention_forward",
    )(q_BTHK, k_BTNK, v_BTNK, spans.starts(segments_BT))


def backward(
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    segments_BT: jax.Array,
    out_BTHK: jax.Array,
    lse_BHT: jax.Array,
    d_out_BTHK: jax.Array,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v, in their shapes and types."""
    delta_BHT = jnp.einsum(
        "bthk,bthk->bht", out_BTHK, d_out_BTHK, preferred_element_type=jnp.float32
    )
    start_BT, end_BT = spans.starts(segments_BT), spans.ends(segments_BT)
    grads = (q_BTHK, k_BTNK, v_BTNK, d_out_BTHK, lse_BHT, delta_BHT, start_BT)
    dq_BTHK = _backward_queries(*grads, interpret)
    dk_BTNK, dv_BTNK = _backward_keys(*grads, end_BT, interpret)
    return dq_BTHK, dk_BTNK, dv_BTNK


def _backward_queries(
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    d_out_BTHK: jax.Array,
    lse_BHT: jax.Array,
    delta_BHT: jax.Array,
    start_BT: jax.Array,
    interpret: bool,
) -> jax.Array:
    b, t, h, k = q_BTHK.shape
    group = h // k_BTNK.shape[2]
    blocks = _blocks(q_BTHK, Blocks(128, 32, 4 if k <= 64 else 8))
    mine = pl.BlockSpec((None, blocks.own, None, k), lambda i, b, h: (b, i, h, 0))
    keys = pl.BlockSpec((None, t, None, k), lambda i, b, h: (b, 0, h // group, 0))
    row = pl.BlockSpec((None, blocks.own), lambda i, b, h: (b, i))
    lse = pl.BlockSpec((None, None, blocks.own), lambda i, b, h: (b, h, i))
    return pl.pallas_call(
        partial(_backward_queries_kernel, blocks=blocks),
        grid=(t // blocks.own, b, h),
        in_specs=[mine, keys, keys, mine, lse, lse, row],
        out_specs=mine,
        out_shape=q_BTHK,
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=STAGES),
        interpret=interpret,
        name="attention_backward_queries",
    )(q_BTHK, k_BTNK, v_BTNK, d_out_BTHK, lse_BHT, delta_BHT, start_BT)


def _backward_keys(
    q_BTHK: jax.Array,
    k_BTNK: jax.Array,
    v_BTNK: jax.Array,
    d_out_BTHK: jax.Array,
    lse_BHT: jax.Array,
    delta_BHT: jax.Array,
    start_BT: jax.Array,
    end_BT: jax.Array,
    interpret: bool,
) -> tuple[jax.Array, jax.Array]:
    b, t, h, k = q_BTHK.shape
    n = k_BTNK.shape[2]
    group = h // n
    blocks = _blocks(q_BTHK, Blocks(128, 32, 4 if k <= 64 else 8))
    mine = pl.BlockSpec((None, blocks.own, None, k), lambda i, b, n: (b, i, n, 0))
    queries = pl.BlockSpec((None, t, group, k), lambda i, b, n: (b, 0, n, 0))
    row = pl.BlockSpec((None, t), lambda i, b, n: (b, 0))
    lse = pl.BlockSpec((None, group, t), lambda i, b, n: (b, n, 0))
    return pl.pallas_call(
        partial(_backward_keys_kernel, blocks=blocks, group=group),
        grid=(t // blocks.own, b, n),
        in_specs=[queries, mine, mine, queries, lse, lse, row, row],
        out_specs=[mine, mine],
        out_shape=[k_BTNK, v_BTNK],
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=STAGES),
        interpret=interpret,
        name="attention_backward_keys",
    )(q_BTHK, k_BTNK, v_BTNK, d_out_BTHK, lse_BHT, delta_BHT, start_BT, end_BT)


def _forward_kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, start_ref: Any, out_ref: Any, lse_ref: Any, blocks: Blocks
) -> None:
    q_qK, start_q = q_ref[...], start_ref[...]
    place_q = pl.program_id(0) * blocks.own + jnp.arange(blocks.own)

    def step(j: jax.Array, carry: tuple) -> tuple:
        sum_qK, top_q, weight_q = carry
        here = pl.ds(j * blocks.other, blocks.other)
        s_qs = _scores(q_qK, k_ref[here, :], place_q, start_q, j * blocks.other)
        new_top_q = jnp.maximum(top_q, s_qs.max(axis=1))
        shrink_q = jnp.exp2(top_q - new_top_q)
        p_qs = jnp.exp2(s_qs - new_top_q[:, None])
        v_sK = v_ref[here, :]
        sum_qK = sum_qK * shrink_q[:, None] + _dot(p_qs.astype(v_sK.dtype), v_sK)
        return sum_qK, new_top_q, weight_q * shrink_q + p_qs.sum(axis=1)

    zero = jnp.zeros(q_qK.shape, jnp.float32), jnp.full(blocks.own, MASKED), jnp.zeros(blocks.own)
    sum_qK, top_q, weight_q = jax.lax.fori_loop(*_keys_of(blocks, start_ref), step, zero)
    out_ref[...] = (sum_qK / weight_q[:, None]).astype(out_ref.dtype)
    lse_ref[...] = (top_q + jnp.log2(weight_q)) / LOG2_E


def _backward_queries_kernel(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    d_out_ref: Any,
    lse_ref: Any,
    delta_ref: Any,
    start_ref: Any,
    dq_ref: Any,
    blocks: Blocks,
) -> None:
    q_qK, d_out_qK, start_q = q_ref[...], d_out_ref[...], start_ref[...]
    lse_q, delta_q = lse_ref[...] * LOG2_E, delta_ref[...]
    place_q = pl.program_id(0) * blocks.own + jnp.arange(blocks.own)

    def step(j: jax.Array, dq_qK: jax.Array) -> jax.Array:
        here = pl.ds(j * blocks.other, blocks.other)
        k_sK = k_ref[here, :]
        p_qs = jnp.exp2(_scores(q_qK, k_sK, place_q, start_q, j * blocks.other) - lse_q[:, None])
        ds_qs = p_qs * (_dot(d_out_qK, v_ref[here, :].T) - delta_q[:, None])
        return dq_qK + _dot(ds_qs.astype(k_sK.dtype), k_sK)

    start = jnp.zeros(q_qK.shape, jnp.float32)
    dq_qK = jax.lax.fori_loop(*_keys_of(blocks, start_ref), step, start)
    dq_ref[...] = (dq_qK * q_qK.shape[1] ** -0.5).astype(dq_ref.dtype)


def _backward_keys_kernel(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    d_out_ref: Any,
    lse_ref: Any,
    delta_ref: Any,
    start_ref: Any,
    end_ref: Any,
    dk_ref: Any,
    dv_ref: Any,
    blocks: Blocks,
    group: int,
) -> None:
    k_sK, v_sK = k_ref[...], v_ref[...]
    mine = pl.program_id(0) * blocks.own
    last = end_ref[mine + blocks.own - 1]  # queries from there on are of other documents
    queries = mine // blocks.other, pl.cdiv(last, blocks.other)

    def step(i: jax.Array, carry: tuple, head: jax.Array) -> tuple:
        dk_sK, dv_sK = carry
        here = pl.ds(i * blocks.other, blocks.other)
        q_qK, d_out_qK = q_ref[here, head, :], d_out_ref[here, head, :]
        place_q = i * blocks.other + jnp.arange(blocks.other)
        s_qs = _scores(q_qK, k_sK, place_q, start_ref[here], mine)
        p_qs = jnp.exp2(s_qs - (lse_ref[head, here] * LOG2_E)[:, None])
        dv_sK += _dot(p_qs.astype(v_sK.dtype).T, d_out_qK)
        ds_qs = p_qs * (_dot(d_out_qK, v_sK.T) - delta_ref[head, here][:, None])
        return dk_sK + _dot(ds_qs.astype(k_sK.dtype).T, q_qK), dv_sK

    def of_head(head: jax.Array, carry: tuple) -> tuple:
        return jax.lax.fori_loop(*queries, partial(step, head=head), carry)

    zero = jnp.zeros(k_sK.shape, jnp.float32)
    carry = jax.lax.fori_loop(0, group, of_head, (zero, zero))
    dk_ref[...] = (carry[0] * k_sK.shape[1] ** -0.5).astype(dk_ref.dtype)
    dv_ref[...] = carry[1].astype(dv_ref.dtype)


def _scores(
    q_qK: jax.Array, k_sK: jax.Array, place_q: jax.Array, start_q: jax.Array, first: jax.Array
) -> jax.Array:
    """Scaled scores of a block in powers of two; `first` is the place of its first key."""
    s_qs = _dot(q_qK, k_sK.T) * (q_qK.shape[1] ** -0.5 * LOG2_E)
    place_s = first + jnp.arange(k_sK.shape[0])
    seen_qs = (place_s[None, :] <= place_q[:, None]) & (place_s[None, :] >= start_q[:, None])
    return jnp.where(seen_qs, s_qs, MASKED)


def _keys_of(blocks: Blocks, start_ref: Any) -> tuple[jax.Array, jax.Array]:
    """First and last + 1 of the blocks of keys that a block of queries has a pair with."""
    end = (pl.program_id(0) + 1) * blocks.own
    return start_ref[0] // blocks.other, pl.cdiv(end, blocks.other)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Product with float32 sums; of float32, without the short mantissas of tensor cores."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)


def _blocks(q_BTHK: jax.Array, wanted: Blocks) -> Blocks:
    """Smaller blocks where those of wide heads or types would not fit into shared memory."""
    _, t, _, k = q_BTHK.shape
    wide = max(1, k * q_BTHK.dtype.itemsize // 256)
    own, other = (max(16, n // wide) for n in wanted[:2])
    return Blocks(math.gcd(own, t), math.gcd(other, t), wanted.warps)


def flops(products: int, operands: Sequence[Shape]) -> float:
    """Of so many products of a block; the first operand is q [B, T, H, K].

    Float32 takes smaller blocks than the 128 counted here, and a little less.
    """
    b, t, h, k = operands[0]
    return products * 2 * k * b * h * pairs(t, 128)


def once(operands: Sequence[Shape], results: Sequence[Shape], size: int) -> float:
    """Bytes of all operands and results: the blocks that are read again are found in L2."""
    wide = (shape for shape in (*operands, *results) if len(shape) == 4)
    narrow = (shape for shape in (*operands, *results) if len(shape) < 4)
    return float(sum(map(np.prod, wide)) * size + sum(map(np.prod, narrow)) * 4)


TARGET = "__gpu$xla.gpu.triton"

KERNEL = Kernel(
    make,
    platforms=("cuda",),
    about="FlashAttention-2 in Pallas, in blocks, none of them between documents",
    capability=(8, 0),
    head_sizes=(32, 64, 128, 256),
    seq_multiple=128,
    calls=(
        Call(TARGET, "attention_forward", lambda operands, results: flops(2, operands), once),
        Call(
            TARGET,
            "attention_backward_queries",
            lambda operands, results: flops(3, operands),
            once,
        ),
        Call(
            TARGET,
            "attention_backward_keys",
            lambda operands, results: flops(4, operands),
            once,
        ),
    ),
)
"""The two parts of the backward pass each form the scores and their gradient, and need no atomic
sums: the same bits each time."""
