"""The input table, with a look-up written by hand for sharded tables.

A plain gather from a sharded table makes XLA gather the whole table or all activations. Here each
device looks up its own columns (or its own vocabulary rows, if the table is tied to the head) for
the tokens of its fsdp group, and an all-to-all over fsdp turns columns into rows of the batch.
Over the tensor axis, parts of the table turn into parts of the sequence.
"""

import jax
from flax import nnx
from jax import numpy as jnp

from jaxlm.config import ModelConfig
from jaxlm.mesh import Axes, sizes_in_force, spec
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
        sizes, table_VD = sizes_in_force(), self.table[...]
        if all(size == 1 for size in sizes.values()):
            return table_VD[tokens_BT].astype(dtype)
        look_up = _tied_look_up if self.tied else _untied_look_up
        out = spec(sizes, ("batch", "seq", None), (*tokens_BT.shape, table_VD.shape[1]))
        split = out[1] is not None
        return jax.shard_map(
            lambda table, tokens: look_up(table.astype(dtype), tokens, split),
            in_specs=(
                spec(sizes, self.axes, table_VD.shape),
                spec(sizes, ("batch", None), tokens_BT.shape),
            ),
            out_specs=out,
            axis_names=set(sizes),
            check_vma=False,  # it cannot see that a gather over tensor leaves equal copies
        )(table_VD, tokens_BT)


def _untied_look_up(table_Vd: jax.Array, tokens_bT: jax.Array, split: bool) -> jax.Array:
    """Every device holds all of V and its part of D, tensor major."""
    tokens_BT = jax.lax.all_gather(tokens_bT, "fsdp", axis=0, tiled=True)
    x_bTd = jax.lax.all_to_all(table_Vd[tokens_BT], "fsdp", 0, 2, tiled=True)
    if split:
        return jax.lax.all_to_all(x_bTd, "tensor", 1, 2, tiled=True)
    return jax.lax.all_gather(x_bTd, "tensor", axis=2, tiled=True)


def _tied_look_up(table_vd: jax.Array, tokens_bT: jax.Array, split: bool) -> jax.Array:
    """Each device of the tensor axis holds its part of V; the parts of a row are summed."""
    tokens_BT = jax.lax.all_gather(tokens_bT, "fsdp", axis=0, tiled=True)
    own_BT = tokens_BT - jax.lax.axis_index("tensor") * table_vd.shape[0]
    here_BT = (own_BT >= 0) & (own_BT < table_vd.shape[0])
    x_BTd = jnp.where(here_BT[..., None], table_vd[jnp.where(here_BT, own_BT, 0)], 0)
    if split:
        x_BTd = jax.lax.psum_scatter(x_BTd, "tensor", scatter_dimension=1, tiled=True)
    else:
        x_BTd = jax.lax.psum(x_BTd, "tensor")
    return jax.lax.all_to_all(x_BTd, "fsdp", 0, 2, tiled=True)
