"""Attention for TPUs: JAX's splash attention, a FlashAttention without blocks above the diagonal.

Documents are kept apart inside a block by segment ids; blocks between documents are computed and
masked. Query heads share their key-value head without a copy of it.

Shapes: B rows, T tokens, H query heads, N key-value heads, K head width.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as blocks

from jaxlm.ops.attention import fused
from jaxlm.ops.attention.fused import Passes
from jaxlm.ops.attention.kernel import Attend, Call, Kernel, Shape, pairs

BLOCKS = (512, 256, 128)
"""Tokens of a side that a program takes at once; the largest that divides a row. Chosen by what the
VMEM of every TPU holds in float32 with heads of 256; their speed is not measured."""


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
    kernel = _kernel(q_BTHK.shape[2], q_BTHK.shape[1], interpret)

    def row(q_THK: jax.Array, k_TNK: jax.Array, v_TNK: jax.Array, ids_T: jax.Array) -> tuple:
        q_HTK, k_NTK, v_NTK = (x.swapaxes(0, 1) for x in (_scaled(q_THK), k_TNK, v_TNK))
        out_HTK, (lse_HT,) = kernel(q_HTK, k_NTK, v_NTK, splash.SegmentIds(ids_T, ids_T))
        return out_HTK.swapaxes(0, 1), lse_HT

    return jax.vmap(row)(q_BTHK, k_BTNK, v_BTNK, segments_BT)


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
    kernel = _kernel(q_BTHK.shape[2], q_BTHK.shape[1], interpret)
    options = {**kernel.kwargs, "save_residuals": False}

    def row(
        q_THK: jax.Array,
        k_TNK: jax.Array,
        v_TNK: jax.Array,
        ids_T: jax.Array,
        out_THK: jax.Array,
        lse_HT: jax.Array,
        d_out_THK: jax.Array,
    ) -> tuple:
        q_HTK, k_NTK, v_NTK, out_HTK, d_out_HTK = (
            x.swapaxes(0, 1) for x in (_scaled(q_THK), k_TNK, v_TNK, out_THK, d_out_THK)
        )
        ids = splash.SegmentIds(ids_T, ids_T)
        # Its own gradient rule would keep the residuals to itself, unnamed, inside the shard_map.
        grads = splash._splash_attention_bwd(
            **options,
            res=(
                *(q_HTK, k_NTK, v_NTK, ids, None, out_HTK, lse_HT),
                *(kernel.dq_mask_info, kernel.dkv_mask_info),
            ),
            do=d_out_HTK,
        )
        dq_THK, dk_TNK, dv_TNK = (x.swapaxes(0, 1) for x in grads[3:6])
        return _scaled(dq_THK), dk_TNK, dv_TNK

    return jax.vmap(row)(q_BTHK, k_BTNK, v_BTNK, segments_BT, out_BTHK, lse_BHT, d_out_BTHK)


def _scaled(q_THK: jax.Array) -> jax.Array:
    """The kernel does not scale scores; q carries it, as in the reference."""
    return q_THK * q_THK.shape[-1] ** -0.5


@lru_cache
def _kernel(heads: int, seq_len: int, interpret: bool) -> splash.SplashAttentionKernel:
    """The kernel of a shape; which blocks have pairs is worked out once, on the host.

    Not by `make_splash_mha`, which puts that on a device: there may be none, only a compiler.
    """
    block = _block(seq_len)
    sizes = splash.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((seq_len, seq_len))] * heads)
    by_queries, mask_function = blocks.process_mask(mask, (block, block))
    by_keys, _ = blocks.process_mask_dkv(mask, (block, block))
    return splash.SplashAttentionKernel(
        by_queries,
        by_queries,
        by_keys,
        block_sizes=sizes,
        is_mqa=False,
        save_residuals=True,
        mask_value=splash.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=mask_function,
        interpret=interpret,
    )


def _block(seq_len: int) -> int:
    return next(n for n in BLOCKS if seq_len % n == 0)


def _queries(operands: Sequence[Shape]) -> Shape:
    """[B, H, T, K] of q among a call's operands: the largest, keys having no more heads.

    A single row may have lost its B; what else has as many dimensions is smaller.
    """
    rank = max(map(len, operands))
    shape = max((shape for shape in operands if len(shape) == rank), key=np.prod)
    return shape if rank == 4 else (1, *shape)


def _flops(products: int, operands: Sequence[Shape]) -> float:
    b, h, t, k = _queries(operands)
    return products * 2 * k * b * h * pairs(t, _block(t))


def _bytes(
    whole: int, lanes: int, operands: Sequence[Shape], results: Sequence[Shape], size: int
) -> float:
    """Of a call that moves `whole` arrays like q once, and two for each block that they meet.

    `lanes` are its float32 and int32 arrays [B, H, T, 128]: of one number a token, but so wide.
    """
    b, h, t, k = _queries(operands)
    again = pairs(t, _block(t)) / _block(t)
    return b * h * (whole * t * k * size + lanes * t * 128 * 4 + 2 * again * k * size)


def _key_bytes(operands: Sequence[Shape], results: Sequence[Shape], size: int) -> float:
    """Of the gradient of keys and values: k, v and their gradients once, q and d_out again."""
    once = 4 * float(np.prod(results[0])) * size
    return once + _bytes(0, 0, operands, results, size)


TARGET = "tpu_custom_call"

KERNEL = Kernel(
    make,
    platforms=("tpu",),
    about="splash attention, in blocks, without scores in memory",
    head_sizes=(64, 128, 256),
    seq_multiple=BLOCKS[-1],
    calls=(
        Call(
            TARGET,
            "splash_mha_fwd_segmented",
            lambda operands, results: _flops(2, operands),
            partial(_bytes, 2, 2),
        ),
        Call(
            TARGET,
            "splash_mha_dq_segmented",
            lambda operands, results: _flops(3, operands),
            partial(_bytes, 3, 1),
        ),
        Call(
            TARGET,
            "splash_mha_dkv_segmented",
            lambda operands, results: _flops(4, operands),
            _key_bytes,
        ),
    ),
)
"""The two parts of the backward pass each form the scores and their gradient: 9 products for the 7
that a single kernel would take."""
