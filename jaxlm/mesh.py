"""The device mesh, and the one table that maps logical axes of arrays to axes of the mesh.

Every parameter carries its logical axes; activations are pinned with `constrain`. Nothing else in
the code names a mesh axis for a parameter.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm.config import MeshConfig
from jaxlm.schema import ConfigError

type Axes = tuple[str | None, ...]

AXES = ("data", "fsdp", "tensor")
"""Axes of the mesh, slowest links first."""

RULES: dict[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
    "table_embed": ("tensor", "fsdp"),
    "table_vocab": (),
    "head_dim": (),
    "norm": (),
    "layers": (),
}
"""Logical axis -> mesh axes that split it; () is replicated."""

REPLICATED_IF_UNEVEN = frozenset({"kv_heads"})
"""Axes that are replicated, not an error, where the mesh cannot split them evenly."""


def make(cfg: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh of a run over all devices; one size of -1 takes what the others leave.

    Raises `ConfigError` if the sizes do not use every device.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [cfg.data, cfg.fsdp, cfg.tensor]
    if -1 in sizes:
        known = int(np.prod([n for n in sizes if n != -1]))
        sizes[sizes.index(-1)] = len(devices) // known
    if int(np.prod(sizes)) != len(devices):
        raise ConfigError(
            f"config.mesh: data={cfg.data} x fsdp={cfg.fsdp} x tensor={cfg.tensor} does not make "
            f"{len(devices)} devices; change one, or set one to -1 for the rest"
        )
    return jax.make_mesh(tuple(sizes), AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)


def spec(mesh_shape: dict[str, int], axes: Axes, shape: tuple[int, ...]) -> P:
    """The PartitionSpec of an array with these logical axes.

    Raises `ConfigError` with the numbers where a dimension does not divide.
    """
    entries: list[tuple[str, ...] | None] = []
    for axis, size in zip(axes, shape, strict=True):
        names = () if axis is None else RULES[axis]
        ways = int(np.prod([mesh_shape[n] for n in names]))
        if size % ways:
            if axis not in REPLICATED_IF_UNEVEN:
                raise ConfigError(
                    f"axis {axis!r} of size {size} (shape {shape}) cannot be split {ways} ways "
                    f"over mesh axes {names}; choose a mesh that divides it"
                )
            names = ()
        entries.append(names or None)
    return P(*entries)


def sharding(mesh: Mesh, axes: Axes, shape: tuple[int, ...]) -> NamedSharding:
    """Where an array with these logical axes lives."""
    return NamedSharding(mesh, spec(dict(mesh.shape), axes, shape))


def rows_sharding(mesh: Mesh) -> NamedSharding:
    """Where a batch of rows [B, T] lives."""
    return NamedSharding(mesh, P(RULES["batch"], None))


def replicated(mesh: Mesh) -> NamedSharding:
    """A whole copy on each device."""
    return NamedSharding(mesh, P())


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Pins an activation to its logical axes, on the mesh in force (`jax.set_mesh`)."""
    ambient = jax.sharding.get_abstract_mesh()
    if ambient.empty or ambient.size == 1:
        return x
    return jax.lax.with_sharding_constraint(x, spec(dict(ambient.shape), axes, x.shape))


def batch_ways() -> int:
    """How many ways the mesh in force splits the rows of a batch."""
    ambient = jax.sharding.get_abstract_mesh()
    return 1 if ambient.empty else ambient.shape["data"] * ambient.shape["fsdp"]


def microbatches(mesh: Mesh, batch_size: int, rows_per_device: int | None) -> int:
    """How many microbatches a step takes; `ConfigError` if the mesh cannot split the batch."""
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    if batch_size % ways:
        raise ConfigError(
            f"config.train.batch_size={batch_size} cannot be split over data x fsdp = {ways} "
            f"devices; use a multiple of {ways}"
        )
    share = batch_size // ways
    rows = share if rows_per_device is None else rows_per_device
    if rows < 1 or share % rows:
        raise ConfigError(
            f"config.train.rows_per_device={rows}: each device has {share} rows of the batch of "
            f"{batch_size}; use a divisor of {share}"
        )
    return share // rows
