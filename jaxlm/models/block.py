"""One layer: attention and MLP, each on a normalised residual stream."""

from typing import NamedTuple

import jax
from flax import nnx
from jax import numpy as jnp

from jaxlm.config import ModelConfig
from jaxlm.models.attention import Attention, Cache
from jaxlm.models.mlp import MLP
from jaxlm.models.norm import RMSNorm
from jaxlm.ops import sequence
from jaxlm.ops.attention import Attend
from jaxlm.ops.rope import Rotation


class Dropout(NamedTuple):
    """Randomness of a batch: a key a row, from its position, and the rate at this point."""

    keys_B: jax.Array
    rate: jax.Array


class Block(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); x [B, T, D] is split along T, too."""

    def __init__(self, cfg: ModelConfig, rngs: nnx.Rngs):
        self.attention_norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.attention = Attention(cfg, rngs)
        self.mlp_norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.mlp = MLP(cfg, rngs)

    def __call__(
        self,
        x_BTD: jax.Array,
        turn: Rotation,
        attend: Attend,
        dropout: Dropout | None,
        layer: jax.Array,
    ) -> jax.Array:
        """[B, T, D]."""
        y_BTD = self.attention(sequence.gather(self.attention_norm(x_BTD)), turn, attend)
        x_BTD = x_BTD + drop(sequence.scatter(y_BTD), dropout, 2 * layer)
        y_BTD = self.mlp(sequence.gather(self.mlp_norm(x_BTD)))
        return x_BTD + drop(sequence.scatter(y_BTD), dropout, 2 * layer + 1)

    def decode(
        self, x_BTD: jax.Array, turn: Rotation, positions_BT: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """[B, T, D] of T new tokens, and the cache with them."""
        h_BTD = sequence.gather(self.attention_norm(x_BTD))
        y_BTD, cache = self.attention.decode(h_BTD, turn, positions_BT, cache)
        x_BTD = x_BTD + sequence.scatter(y_BTD)
        y_BTD = self.mlp(sequence.gather(self.mlp_norm(x_BTD)))
        return x_BTD + sequence.scatter(y_BTD), cache


def drop(x_BTD: jax.Array, dropout: Dropout | None, site: jax.Array) -> jax.Array:
    """Inverted dropout with a mask of each row's own key: the same on every mesh."""
    if dropout is None:
        return x_BTD
    keep = 1.0 - dropout.rate
    mask = lambda key: jax.random.bernoulli(jax.random.fold_in(key, site), keep, x_BTD.shape[1:])  # noqa: E731
    return jnp.where(jax.vmap(mask)(dropout.keys_B), x_BTD / keep.astype(x_BTD.dtype), 0)
