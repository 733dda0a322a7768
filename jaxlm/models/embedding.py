"""The input table, with a look-up written by hand for sharded tables.

A plain gather from a sharded table makes XLA gather the whole table or all activations. Here each
device looks up its own columns (or its own vocabulary rows, if the table is tied to the head) for
the tokens of its fsdp group, and an all-to-all over fsdp turns columns into rows of the batch.
"""

import jax
from flax import nnx
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm.config import ModelConfig
from jaxlm.mesh import Axes, constrain, spec
from jaxlm.models.initial import normal

TIED: Axes = ("vocab", "embed")
UNTIED: Axes = ("table_vocab", "table_embed")


class Embedding(nnx.Module):
    """tokens [B, T] -> [B, T, D]."""

    def __init__(self, cfg: ModelConfig, rngs: nnx.Rngs):
        self.axes = TIED if cfg.tied_embeddings else UNTIED
        table = normal(rngs.params(), (cfg.padded_vocab, cfg.d_model), std=cfg.d_model**-0.5)
        self.table = nnx.Param(table, axes=self.axes)
        self.tied = cfg.tied_embeddings

    def __call__(self, tokens_BT: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """The rows of the table, in `dtype`."""
        ambient = jax.sharding.get_abstract_mesh()
        table_VD = self.table[...]
        if ambient.empty or ambient.size == 1:
            return table_VD[tokens_BT].astype(dtype)
        look_up = _tied_look_up if self.tied else _untied_look_up
        x_BTD = jax.shard_map(
            lambda table, tokens: look_up(table.astype(dtype), tokens),
            in_specs=(
                spec(dict(ambient.shape), self.axes, table_VD.shape),
                P(("data", "fsdp"), None),
            ),
            out_specs=P(("data", "fsdp"), None, None if self.tied else "tensor"),
        )(table_VD, tokens_BT)
        return constrain(x_BTD, "batch", None, None)


def _untied_look_up(table_Vd: jax.Array, tokens_bT: jax.Array) -> jax.Array:
    """Every device holds all of V and its part of D."""
    tokens_BT = jax.lax.all_gather(tokens_bT, "fsdp", axis=0, tiled=True)
    return jax.lax.all_to_all(table_Vd[tokens_BT], "fsdp", 0, 2, tiled=True)


def _tied_look_up(table_vd: jax.Array, tokens_bT: jax.Array) -> jax.Array:
    """Each device of the tensor axis holds its part of V; the parts of a row are summed."""
    tokens_BT = jax.lax.all_gather(tokens_bT, "fsdp", axis=0, tiled=True)
    own_BT = tokens_BT - jax.lax.axis_index("tensor") * table_vd.shape[0]
    here_BT = (own_BT >= 0) & (own_BT < table_vd.shape[0])
    x_BTd = jnp.where(here_BT[..., None], table_vd[jnp.where(here_BT, own_BT, 0)], 0)
    x_BTd = jax.lax.psum(x_BTd, "tensor")
    return jax.lax.all_to_all(x_BTd, "fsdp", 0, 2, tiled=True)
