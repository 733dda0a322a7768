"""Cross entropy over the padded vocabulary, whole or in blocks, with z-loss (PaLM, section 5).

Shapes: B rows, T targets, D model width, V padded vocabulary; s shards of it, v a shard's block.
"""

import functools
from typing import NamedTuple

import jax
from jax import numpy as jnp

from jaxlm.config import LossConfig
from jaxlm.mesh import Axes, constrain, platform_in_force, sizes_in_force
from jaxlm.ops import sequence
from jaxlm.ops.dense import dense, dense_of_shards, gather, laid_out
from jaxlm.ops.passes import again, rounded
from jaxlm.schema import ConfigError

PADDED = -1e30
"""Logit of a row of the vocabulary that stands for no token; finite, so that it has a gradient."""


class TokenLoss(NamedTuple):
    """Of each target: negative log-likelihood in nats, and the log of the normalizer."""

    nll_BT: jax.Array
    log_z_BT: jax.Array


class Sums(NamedTuple):
    """Sums over weighted targets; divide by `weight` once, at the end of a step."""

    loss: jax.Array
    nll: jax.Array
    weight: jax.Array


def check_blocks(vocab_blocks: int, padded_vocab: int, tensor: int) -> None:
    """`ConfigError` if the padded vocabulary cannot be cut so, over `tensor` shards."""
    if padded_vocab % (vocab_blocks * tensor):
        fits = [n for n in range(1, vocab_blocks) if padded_vocab % (n * tensor) == 0]
        raise ConfigError(
            f"config.loss.vocab_blocks={vocab_blocks}: the padded vocabulary of {padded_vocab} is "
            f"not a multiple of {vocab_blocks} blocks x {tensor} tensor shards; "
            f"use {fits[-1] if fits else 1}"
        )


def token_loss(
    hidden_BTD: jax.Array,
    kernel_DV: jax.Array,
    axes: Axes,
    targets_BT: jax.Array,
    vocab_size: int,
    vocab_blocks: int = 1,
) -> TokenLoss:
    """The loss of each target; float32. Columns from `vocab_size` on count for nothing."""
    hidden_BTD = sequence.gather(hidden_BTD)  # each tensor shard has its part of V for all of T
    if vocab_blocks > 1:
        return _blocked(hidden_BTD, kernel_DV, axes, targets_BT, vocab_size, vocab_blocks)
    logits_BTV = constrain(dense(hidden_BTD, kernel_DV, axes), "batch", None, "vocab")
    if platform_in_force() == "cpu" and sizes_in_force()["tensor"] == 1:
        return TokenLoss(*_of_rows(logits_BTV, targets_BT, vocab_size))
    ids_V = jnp.arange(kernel_DV.shape[1])
    logits_BTV, at_target_BTV = _mask(
        logits_BTV, ids_V[None, None], targets_BT[:, :, None], vocab_size
    )
    log_z_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
    return TokenLoss(log_z_BT - at_target_BTV.sum(-1), log_z_BT)


def _mask(
    logits: jax.Array, ids: jax.Array, targets: jax.Array, vocab_size: int
) -> tuple[jax.Array, jax.Array]:
    """Float32 logits without padding, and the same with all but the target's set to zero.

    `ids` and `targets` have the dimensions of the logits, or 1. The target is picked by comparing
    ids: a gather would force the logits into memory.
    """
    logits = jnp.where(ids < vocab_size, logits.astype(jnp.float32), PADDED)
    return logits, jnp.where(ids == targets, logits, 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _of_rows(
    logits_BTV: jax.Array, targets_BT: jax.Array, vocab_size: int
) -> tuple[jax.Array, jax.Array]:
    """The fields of `TokenLoss` from logits that are whole on each device, for a CPU.

    XLA's CPU compiler writes each value that two others take to memory, in float32. Here each pass
    over the logits takes them as they are.
    """
    return _forward(logits_BTV, targets_BT, vocab_size)[0]


def _forward(logits_BTV: jax.Array, targets_BT: jax.Array, vocab_size: int) -> tuple:
    dtype = logits_BTV.dtype

    def real(logits_BTV: jax.Array) -> jax.Array:
        if vocab_size == logits_BTV.shape[-1]:
            return logits_BTV
        real_11V = jnp.arange(logits_BTV.shape[-1])[None, None] < vocab_size
        return jnp.where(real_11V, logits_BTV, jnp.array(PADDED, dtype))

    at_target_BT1 = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
    top_BT1 = real(logits_BTV).max(-1, keepdims=True).astype(jnp.float32)
    logits_BTV, top_BT1 = again(logits_BTV, top_BT1)
    p_BTV = laid_out(rounded(jnp.exp(real(logits_BTV).astype(jnp.float32) - top_BT1), dtype))
    sum_BT1 = jax.lax.optimization_barrier(p_BTV).astype(jnp.float32).sum(-1, keepdims=True)
    log_z_BT1 = top_BT1 + jnp.log(sum_BT1)
    nll_BT1 = log_z_BT1 - at_target_BT1.astype(jnp.float32)
    return (nll_BT1[..., 0], log_z_BT1[..., 0]), (p_BTV, sum_BT1, targets_BT)


def _backward(vocab_size: int, saved: tuple, cotangents: tuple) -> tuple[jax.Array, None]:
    (p_BTV, sum_BT1, targets_BT), (nll_BT, z_BT) = saved, cotangents
    ids_11V = jnp.arange(p_BTV.shape[-1])[None, None]
    g_BTV = p_BTV.astype(jnp.float32) * ((nll_BT + z_BT)[..., None] / sum_BT1)
    g_BTV -= jnp.where(ids_11V == targets_BT[..., None], nll_BT[..., None], 0.0)
    return rounded(g_BTV, p_BTV.dtype), None


_of_rows.defvjp(_forward, _backward)


def _blocked(
    hidden_BTD: jax.Array,
    kernel_DV: jax.Array,
    axes: Axes,
    targets_BT: jax.Array,
    vocab_size: int,
    blocks: int,
) -> TokenLoss:
    """The same with an online log-sum-exp over blocks; logits are recomputed in the backward pass.

    Block j is the j-th part of every tensor shard, so that taking it moves nothing. Each shard has
    sums of its own, and the gradient of a hidden state of its own, until the blocks are through:
    what the shards exchange is exchanged once, not once a block.
    """
    d, v = kernel_DV.shape
    shards = sizes_in_force().get("tensor", 1)
    assert v % (shards * blocks) == 0, (v, shards, blocks)
    width = v // (shards * blocks)
    kernel_nDsv = jnp.moveaxis(kernel_DV.reshape(d, shards, blocks, width), 2, 0)
    ids_nsv = jnp.moveaxis(jnp.arange(v).reshape(shards, blocks, width), 1, 0)
    block_axes = (axes[0], axes[1], None)
    hidden_sBTD = jnp.broadcast_to(hidden_BTD[None], (shards, *hidden_BTD.shape))
    hidden_sBTD = constrain(hidden_sBTD, "vocab", "batch", None, None)

    def body(carry: tuple, block: tuple) -> tuple:
        top_sBT, sum_sBT, hit_sBT = carry
        kernel_Dsv, ids_sv = block
        kernel_Dsv = gather(kernel_Dsv, block_axes, hidden_BTD.dtype)
        logits = dense_of_shards(hidden_sBTD, kernel_Dsv)
        logits = constrain(logits, "vocab", "batch", None, None)
        logits_sBTv, at_target_sBTv = _mask(
            logits, ids_sv[:, None, None], targets_BT[None, :, :, None], vocab_size
        )
        new_sBT = jax.lax.stop_gradient(jnp.maximum(top_sBT, logits_sBTv.max(-1)))
        sum_sBT = sum_sBT * jnp.exp(top_sBT - new_sBT)
        sum_sBT = sum_sBT + jnp.exp(logits_sBTv - new_sBT[..., None]).sum(-1)
        return (new_sBT, sum_sBT, hit_sBT + at_target_sBTv.sum(-1)), None

    zeros_sBT = jnp.zeros((shards, *targets_BT.shape), jnp.float32)
    zeros_sBT = constrain(zeros_sBT, "vocab", "batch", None)
    start = (zeros_sBT + PADDED, zeros_sBT, zeros_sBT)
    (top_sBT, sum_sBT, hit_sBT), _ = jax.lax.scan(
        jax.checkpoint(body), start, (kernel_nDsv, ids_nsv)
    )
    top_BT = top_sBT.max(0)
    log_z_BT = top_BT + jnp.log((sum_sBT * jnp.exp(top_sBT - top_BT[None])).sum(0))
    return TokenLoss(log_z_BT - hit_sBT.sum(0), log_z_BT)


def sums(tokens: TokenLoss, weights_BT: jax.Array, cfg: LossConfig) -> Sums:
    """Weighted, undivided sums; `loss` includes the z-loss."""
    nll = (tokens.nll_BT * weights_BT).sum()
    z = (jnp.square(tokens.log_z_BT) * weights_BT).sum() if cfg.z_loss else 0.0
    return Sums(nll + cfg.z_loss * z, nll, weights_BT.sum())
