"""The whole network: embedding, stacked layers, final norm, head; and how the layers are run.

NNX modules hold the parameters of one layer and of the ends; here they are plain nested dicts,
the layers stacked along a leading axis whatever `cfg.layers` says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax import numpy as jnp

from jaxlm.config import ModelConfig
from jaxlm.mesh import Axes
from jaxlm.models.attention import Cache
from jaxlm.models.block import Dropout
from jaxlm.models.embedding import Embedding
from jaxlm.models.layers import scanned
from jaxlm.models.linear import Linear
from jaxlm.models.norm import RMSNorm
from jaxlm.models.remat import rematerialized
from jaxlm.ops.attention import ATTENTION
from jaxlm.ops.rope import rotation

type Params = dict[str, Any]


class Head(NamedTuple):
    """The output projection."""

    kernel_DV: jax.Array
    axes: Axes


class Ends(nnx.Module):
    """What is not a layer."""

    def __init__(self, cfg: ModelConfig, rngs: nnx.Rngs):
        self.embedding = Embedding(cfg, rngs)
        self.norm = RMSNorm(cfg.d_model, cfg.norm_eps)
        if not cfg.tied_embeddings:
            self.head = Linear((cfg.d_model, cfg.padded_vocab), ("embed", "vocab"), rngs)


@dataclass(frozen=True)
class ModelDef:
    """A model without arrays: how to make its parameters, and what they compute."""

    cfg: ModelConfig
    block: Callable[[ModelConfig, nnx.Rngs], nnx.Module]
    attention: str
    """A key of `ATTENTION`."""

    def init(self, key: jax.Array) -> Params:
        """Float32 parameters; the same on every mesh."""
        ends_key, blocks_key = jax.random.split(key)
        return {
            **_params(Ends(self.cfg, nnx.Rngs(params=ends_key))),
            "blocks": jax.vmap(lambda k: _params(self.block(self.cfg, nnx.Rngs(params=k))))(
                jax.random.split(blocks_key, self.cfg.n_layers)
            ),
        }

    def abstract(self) -> Params:
        """Shapes and types of the parameters."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0)))

    def axes(self) -> Params:
        """Logical axes of the parameters, as tuples at the leaves."""
        stacked = jax.tree.map(
            lambda axes: ("layers", *axes), _axes(self._block()), is_leaf=_is_axes
        )
        return {**_axes(self._ends()), "blocks": stacked}

    def hidden(
        self,
        params: Params,
        tokens_BT: jax.Array,
        segments_BT: jax.Array,
        positions_BT: jax.Array,
        dropout: Dropout | None = None,
    ) -> jax.Array:
        """[B, T, D] after the final norm, in the compute type."""
        inputs = (tokens_BT, segments_BT, positions_BT)
        return self._forward(params, *inputs, dropout, lambda x_BTD: None)[0]

    def residual_squares(
        self,
        params: Params,
        tokens_BT: jax.Array,
        segments_BT: jax.Array,
        positions_BT: jax.Array,
        dropout: Dropout | None = None,
    ) -> jax.Array:
        """float32[L]: mean square of what each layer leaves on its residual stream, summed over
        tokens."""

        def squares(x_BTD: jax.Array) -> jax.Array:
            return jnp.square(x_BTD.astype(jnp.float32)).mean(-1).sum()

        inputs = (tokens_BT, segments_BT, positions_BT)
        return self._forward(params, *inputs, dropout, squares)[1]

    def _forward(
        self,
        params: Params,
        tokens_BT: jax.Array,
        segments_BT: jax.Array,
        positions_BT: jax.Array,
        dropout: Dropout | None,
        observe: Callable[[jax.Array], Any],
    ) -> tuple[jax.Array, Any]:
        """`hidden`, and what `observe` makes of the residual stream [B, T, D] behind each layer."""
        ends, attend = self._merge_ends(params), ATTENTION[self.attention].make(segments_BT)
        turn = rotation(positions_BT, self.cfg.head_size, self.cfg.rope_theta)
        block_def = nnx.graphdef(self._block())

        def body(x_BTD: jax.Array, layer: tuple[jax.Array, Params]) -> tuple[jax.Array, Any]:
            index, layer_params = layer
            block = nnx.merge(block_def, layer_params)
            x_BTD = block(x_BTD, turn, attend, dropout, index)
            return x_BTD, observe(x_BTD)

        body = rematerialized(body, self.cfg)
        x_BTD = ends.embedding(tokens_BT, self.dtype)
        layers = (jnp.arange(self.cfg.n_layers), params["blocks"])
        x_BTD, observed = self._run(body, x_BTD, layers)
        return ends.norm(x_BTD), observed

    def decode(
        self, params: Params, tokens_BT: jax.Array, positions_BT: jax.Array, caches: Cache
    ) -> tuple[jax.Array, Cache]:
        """[B, T, D] of T further tokens a row, and the caches [L, B, S, N, K] with them in."""
        ends = self._merge_ends(params)
        turn = rotation(positions_BT, self.cfg.head_size, self.cfg.rope_theta)
        block_def = nnx.graphdef(self._block())

        def body(x_BTD: jax.Array, layer: tuple[Params, Cache]) -> tuple[jax.Array, Cache]:
            return nnx.merge(block_def, layer[0]).decode(x_BTD, turn, positions_BT, layer[1])

        x_BTD = ends.embedding(tokens_BT, self.dtype)
        x_BTD, caches = self._run(body, x_BTD, (params["blocks"], caches))
        return ends.norm(x_BTD), caches

    def empty_cache(self, rows: int, length: int) -> Cache:
        """Caches for `rows` sequences of at most `length` tokens."""
        cfg = self.cfg
        shape = (cfg.n_layers, rows, length, cfg.n_kv_heads, cfg.head_size)
        return Cache(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))

    def head(self, params: Params) -> Head:
        """The output projection, for the loss and the sampler."""
        if self.cfg.tied_embeddings:
            return Head(params["embedding"]["table"].T, ("embed", "vocab"))
        return Head(params["head"]["kernel"], ("embed", "vocab"))

    @property
    def dtype(self) -> jnp.dtype:
        """Type of activations and matrix products."""
        return jnp.dtype(self.cfg.compute_dtype)

    def _run(self, body: Callable, x_BTD: jax.Array, layers: Any) -> tuple[jax.Array, Any]:
        if scanned(self.cfg):
            return jax.lax.scan(body, x_BTD, layers)
        outputs = []
        for i in range(self.cfg.n_layers):
            x_BTD, y = body(x_BTD, jax.tree.map(lambda a, i=i: a[i], layers))
            outputs.append(y)
        return x_BTD, jax.tree.map(lambda *ys: jnp.stack(ys), *outputs)

    def _ends(self) -> Ends:
        return nnx.eval_shape(lambda: Ends(self.cfg, nnx.Rngs(0)))

    def _block(self) -> nnx.Module:
        return nnx.eval_shape(lambda: self.block(self.cfg, nnx.Rngs(0)))

    def _merge_ends(self, params: Params) -> Ends:
        ends = {name: value for name, value in params.items() if name != "blocks"}
        return nnx.merge(nnx.graphdef(self._ends()), ends)


def _params(module: nnx.Module) -> Params:
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def _axes(module: nnx.Module) -> Params:
    def read(variable: nnx.Variable) -> Axes:
        return variable.get_metadata()["axes"]

    state = nnx.state(module, nnx.Param)
    return nnx.to_pure_dict(
        jax.tree.map(read, state, is_leaf=lambda v: isinstance(v, nnx.Variable))
    )


def _is_axes(value: Any) -> bool:
    return isinstance(value, tuple)
