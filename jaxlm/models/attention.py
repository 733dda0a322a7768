"""Grouped-query attention with rotary positions; over a row, or over a cache of keys and values."""

from typing import NamedTuple

import jax
from flax import nnx
from jax import numpy as jnp

from jaxlm.config import ModelConfig
from jaxlm.mesh import constrain
from jaxlm.models.linear import Linear
from jaxlm.models.norm import RMSNorm
from jaxlm.ops.attention import Attend, reference
from jaxlm.ops.rope import Rotation, rotate


class Cache(NamedTuple):
    """Keys and values of the tokens so far, [B, S, N, K] each."""

    k: jax.Array
    v: jax.Array


class Attention(nnx.Module):
    """x [B, T, D] -> [B, T, D]."""

    def __init__(self, cfg: ModelConfig, rngs: nnx.Rngs):
        d, h, n, k = cfg.d_model, cfg.n_heads, cfg.n_kv_heads, cfg.head_size
        self.query = Linear((d, h, k), ("embed", "heads", "head_dim"), rngs)
        self.key = Linear((d, n, k), ("embed", "kv_heads", "head_dim"), rngs)
        self.value = Linear((d, n, k), ("embed", "kv_heads", "head_dim"), rngs)
        gain = (2 * cfg.n_layers) ** -0.5
        self.out = Linear((h, k, d), ("heads", "head_dim", "embed"), rngs, in_dims=2, gain=gain)
        self.qk_norm = cfg.qk_norm
        if cfg.qk_norm:
            self.query_norm = RMSNorm(k, cfg.norm_eps, ("head_dim",))
            self.key_norm = RMSNorm(k, cfg.norm_eps, ("head_dim",))

    def __call__(self, x_BTD: jax.Array, turn: Rotation, attend: Attend) -> jax.Array:
        """Attention inside a row, by a kernel that keeps documents apart."""
        q_BTHK, k_BTNK, v_BTNK = self._project(x_BTD, turn)
        return self._output(attend(q_BTHK, k_BTNK, v_BTNK))

    def decode(
        self, x_BTD: jax.Array, turn: Rotation, positions_BT: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """Writes T new tokens of each row into the cache, from positions_BT[:, 0], and attends.

        A key may be seen once its position is at or before the query's.
        """
        q_BTHK, k_BTNK, v_BTNK = self._project(x_BTD, turn)
        start_B = positions_BT[:, 0]
        cache = Cache(write(cache.k, k_BTNK, start_B), write(cache.v, v_BTNK, start_B))
        mask_BTS = jnp.arange(cache.k.shape[1])[None, None] <= positions_BT[:, :, None]
        return self._output(reference.attention(q_BTHK, cache.k, cache.v, mask_BTS)), cache

    def _project(self, x_BTD: jax.Array, turn: Rotation) -> tuple[jax.Array, jax.Array, jax.Array]:
        q_BTHK, k_BTNK, v_BTNK = self.query(x_BTD), self.key(x_BTD), self.value(x_BTD)
        if self.qk_norm:
            q_BTHK, k_BTNK = self.query_norm(q_BTHK), self.key_norm(k_BTNK)
        q_BTHK, k_BTNK = rotate(q_BTHK, turn), rotate(k_BTNK, turn)
        kv_axes = ("batch", None, "kv_heads", None)
        return (
            constrain(q_BTHK, "batch", None, "heads", None),
            constrain(k_BTNK, *kv_axes),
            constrain(v_BTNK, *kv_axes),
        )

    def _output(self, o_BTHK: jax.Array) -> jax.Array:
        return self.out(constrain(o_BTHK, "batch", None, "heads", None))


def write(cache_BSNK: jax.Array, new_BTNK: jax.Array, start_B: jax.Array) -> jax.Array:
    """The cache with each row's new entries from its own start."""
    put = lambda row, new, start: jax.lax.dynamic_update_slice(row, new, (start, 0, 0))  # noqa: E731
    return jax.vmap(put)(cache_BSNK, new_BTNK.astype(cache_BSNK.dtype), start_B)
