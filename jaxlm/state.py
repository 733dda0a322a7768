"""What a run carries from step to step, where it lives, and how it begins."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding

from jaxlm import mesh as mesh_lib
from jaxlm.models.transformer import ModelDef, Params


class TrainState(NamedTuple):
    """Everything that a resume needs."""

    step: jax.Array
    """int32: updates so far."""
    position: jax.Array
    """uint32[2]: high and low half of the position, the next row of the order."""
    params: Params
    """Float32."""
    opt_state: optax.OptState


def split_position(position: int | np.ndarray) -> np.ndarray:
    """Positions as uint32[..., 2], high half first; JAX has no 64-bit integers by default."""
    return np.stack([position >> 32, position & 0xFFFFFFFF], axis=-1).astype(np.uint32)


def join_position(halves: np.ndarray | jax.Array) -> int:
    """The position of its two halves."""
    high, low = (int(h) for h in np.asarray(halves))
    return (high << 32) | low


def shardings(model: ModelDef, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """A TrainState of NamedShardings: optimizer state lies with its parameter."""
    params = param_shardings(model, mesh)
    whole = mesh_lib.replicated(mesh)
    opt_state = optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, model.abstract()),
        params,
        transform_non_params=lambda _: whole,
    )
    return TrainState(whole, whole, params, opt_state)  # pyright: ignore[reportArgumentType]


def param_shardings(model: ModelDef, mesh: Mesh) -> Params:
    """Where each parameter lives; `ConfigError` where the mesh cannot split one."""

    def place(axes: mesh_lib.Axes, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        return mesh_lib.sharding(mesh, axes, leaf.shape)

    return jax.tree.map(
        place, model.axes(), model.abstract(), is_leaf=lambda x: isinstance(x, tuple)
    )


def init(
    model: ModelDef, optimizer: optax.GradientTransformation, seed: int, where: TrainState
) -> TrainState:
    """The state at position 0, made in place; bit-identical on every mesh."""
    build = jax.jit(_build(model, optimizer), out_shardings=where)
    return build(jax.random.key(seed))


def abstract(
    model: ModelDef, optimizer: optax.GradientTransformation, where: TrainState
) -> TrainState:
    """Shapes, types and shardings of a state, without arrays: what a restore fills."""
    build = _build(model, optimizer)
    shapes = jax.eval_shape(lambda: build(jax.random.key(0)))
    return jax.tree.map(
        lambda s, place: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place), shapes, where
    )


def _build(
    model: ModelDef, optimizer: optax.GradientTransformation
) -> Callable[[jax.Array], TrainState]:
    def build(key: jax.Array) -> TrainState:
        params = model.init(key)
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, jnp.zeros(2, jnp.uint32), params, optimizer.init(params))

    return build
