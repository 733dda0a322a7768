"""Cross entropy over the padded vocabulary, whole or in blocks, with z-loss (PaLM, section 5).

Shapes: B rows, T targets, D model width, V padded vocabulary, v a block of it.
"""

from typing import NamedTuple

import jax
from jax import numpy as jnp

from jaxlm.config import LossConfig
from jaxlm.mesh import Axes, constrain
from jaxlm.ops.dense import dense, gather
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
    if vocab_blocks > 1:
        return _blocked(hidden_BTD, kernel_DV, axes, targets_BT, vocab_size, vocab_blocks)
    logits_BTV = constrain(dense(hidden_BTD, kernel_DV, axes), "batch", None, "vocab")
    ids_V = jnp.arange(kernel_DV.shape[1])
    logits_BTV, at_target_BTV = _mask(logits_BTV, ids_V, targets_BT, vocab_size)
    log_z_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
    return TokenLoss(log_z_BT - at_target_BTV.sum(-1), log_z_BT)


def _mask(
    logits_BTV: jax.Array, ids_V: jax.Array, targets_BT: jax.Array, vocab_size: int
) -> tuple[jax.Array, jax.Array]:
    """Float32 logits without padding, and the same with all but the target's set to zero.

    The target is picked by comparing ids: a gather would force the logits into memory.
    """
    logits_BTV = jnp.where(ids_V[None, None] < vocab_size, logits_BTV.astype(jnp.float32), PADDED)
    hit_BTV = ids_V[None, None] == targets_BT[:, :, None]
    return logits_BTV, jnp.where(hit_BTV, logits_BTV, 0.0)


def _blocked(
    hidden_BTD: jax.Array,
    kernel_DV: jax.Array,
    axes: Axes,
    targets_BT: jax.Array,
    vocab_size: int,
    blocks: int,
) -> TokenLoss:
    """The same with an online log-sum-exp over blocks; logits are recomputed in the backward pass.

    Block j is the j-th part of every tensor shard, so that taking it moves nothing.
    """
    d, v = kernel_DV.shape
    ambient = jax.sharding.get_abstract_mesh()
    shards = 1 if ambient.empty else ambient.shape["tensor"]
    assert v % (shards * blocks) == 0, (v, shards, blocks)
    width = v // (shards * blocks)
    kernel_nDsv = jnp.moveaxis(kernel_DV.reshape(d, shards, blocks, width), 2, 0)
    ids_nsv = jnp.moveaxis(jnp.arange(v).reshape(shards, blocks, width), 1, 0)
    block_axes = (axes[0], axes[1], None)

    def body(carry: tuple, block: tuple) -> tuple:
        top_BT, sum_BT, hit_BT = carry
        kernel_Dsv, ids_sv = block
        kernel_Dsv = gather(kernel_Dsv, block_axes, hidden_BTD.dtype)
        logits = jnp.einsum("btd,dsv->btsv", hidden_BTD, kernel_Dsv)
        logits = constrain(logits, "batch", None, "vocab", None)
        logits_BTv, at_target_BTv = _mask(
            logits.reshape(*targets_BT.shape, -1), ids_sv.reshape(-1), targets_BT, vocab_size
        )
        new_BT = jax.lax.stop_gradient(jnp.maximum(top_BT, logits_BTv.max(-1)))
        sum_BT = sum_BT * jnp.exp(top_BT - new_BT)
        sum_BT = sum_BT + jnp.exp(logits_BTv - new_BT[:, :, None]).sum(-1)
        return (new_BT, sum_BT, hit_BT + at_target_BTv.sum(-1)), None

    zeros_BT = jnp.zeros(targets_BT.shape, jnp.float32)
    start = (zeros_BT + PADDED, zeros_BT, zeros_BT)
    (top_BT, sum_BT, hit_BT), _ = jax.lax.scan(jax.checkpoint(body), start, (kernel_nDsv, ids_nsv))
    log_z_BT = top_BT + jnp.log(sum_BT)
    return TokenLoss(log_z_BT - hit_BT, log_z_BT)


def sums(tokens: TokenLoss, weights_BT: jax.Array, cfg: LossConfig) -> Sums:
    """Weighted, undivided sums; `loss` includes the z-loss."""
    nll = (tokens.nll_BT * weights_BT).sum()
    z = (jnp.square(tokens.log_z_BT) * weights_BT).sum() if cfg.z_loss else 0.0
    return Sums(nll + cfg.z_loss * z, nll, weights_BT.sum())
