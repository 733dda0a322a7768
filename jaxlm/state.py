"""What a run carries from step to step, where it lives, and how it begins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding

from jaxlm import mesh as mesh_lib
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.optim.optimizer import Optimizer, OptState
from jaxlm.optim.paths import flat, nested
from jaxlm.optim.rule import Slot

HOST = "pinned_host"
"""JAX's name of host memory that a device can reach by itself."""


class TrainState(NamedTuple):
    """Everything that a resume needs."""

    step: jax.Array
    """int32: updates so far."""
    position: jax.Array
    """uint32[2]: high and low half of the position, the next row of the order."""
    params: Params
    """Float32."""
    opt_state: OptState


def split_position(position: int | np.ndarray) -> np.ndarray:
    """Positions as uint32[..., 2], high half first; JAX has no 64-bit integers by default."""
    return np.stack([position >> 32, position & 0xFFFFFFFF], axis=-1).astype(np.uint32)


def join_position(halves: np.ndarray | jax.Array) -> int:
    """The position of its two halves."""
    high, low = (int(h) for h in np.asarray(halves))
    return (high << 32) | low


def shardings(model: ModelDef, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """A TrainState of NamedShardings: optimizer state lies with its parameter.

    What an offloaded optimizer keeps is in `pinned_host` memory, split among the hosts' devices.
    """
    axes, shapes = flat(model.axes()), flat(model.abstract())

    def place(path: tuple[str, ...], slot: Slot) -> NamedSharding:
        own = tuple(axes[path][dim] for dim in slot.dims)
        where = mesh_lib.sharding(mesh, own, slot.shape(shapes[path].shape))
        return where.with_memory_kind(HOST) if optimizer.offload else where

    slots = {
        name: nested({path: place(path, slot) for path, slot in slots.items()})
        for name, slots in optimizer.slots(model.abstract()).items()
    }
    whole = mesh_lib.replicated(mesh)
    opt_state = OptState(whole, slots)  # pyright: ignore[reportArgumentType]
    return TrainState(whole, whole, param_shardings(model, mesh), opt_state)  # pyright: ignore[reportArgumentType]


def param_shardings(model: ModelDef, mesh: Mesh) -> Params:
    """Where each parameter lives; `ConfigError` where the mesh cannot split one."""

    def place(axes: mesh_lib.Axes, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        return mesh_lib.sharding(mesh, axes, leaf.shape)

    return jax.tree.map(
        place, model.axes(), model.abstract(), is_leaf=lambda x: isinstance(x, tuple)
    )


def init(model: ModelDef, optimizer: Optimizer, seed: int, where: TrainState) -> TrainState:
    """The state at position 0, made in place; bit-identical on every mesh."""
    build = jax.jit(_build(model, optimizer), out_shardings=where)
    return build(jax.random.key(seed))


def abstract(model: ModelDef, optimizer: Optimizer, where: TrainState) -> TrainState:
    """Shapes, types and shardings of a state, without arrays: what a restore fills."""
    build = _build(model, optimizer)
    shapes = jax.eval_shape(lambda: build(jax.random.key(0)))
    return jax.tree.map(
        lambda s, place: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place), shapes, where
    )


def size(tree: Any) -> int:
    """Bytes of all arrays of a tree, or of those that its shapes are of; copies do not count."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _build(model: ModelDef, optimizer: Optimizer) -> Callable[[jax.Array], TrainState]:
    def build(key: jax.Array) -> TrainState:
        params = model.init(key)
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, jnp.zeros(2, jnp.uint32), params, optimizer.init(params))

    return build
