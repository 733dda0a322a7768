"""The device mesh, and the one table that maps logical axes of arrays to axes of the mesh.

Every parameter carries its logical axes; activations are pinned with `constrain`. Nothing else in
the code names a mesh axis for a parameter.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm.config import MeshConfig
from jaxlm.schema import ConfigError

type Axes = tuple[str | None, ...]

AXES = ("data", "fsdp", "tensor")
"""Axes of the mesh, slowest links first."""

RULES: dict[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "seq": ("tensor",),
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

REPLICATED_IF_UNEVEN = frozenset({"kv_heads", "seq"})
"""Axes that are replicated, not an error, where the mesh cannot split them evenly."""


def make(cfg: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh of a run over all devices; one size of -1 takes what the others leave.

    The devices may be real ones, or those of a topology to compile for. `data` is the axis that
    crosses from one TPU slice to the next; of GPUs, `fsdp` may cross nodes too.
    Raises `ConfigError` if the sizes do not use every device, or put an axis on links that are
    too slow for it.
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
    return Mesh(_arrange(devices, sizes), AXES, axis_types=(AxisType.Auto,) * 3)


def _arrange(devices: Sequence[Any], sizes: list[int]) -> np.ndarray:
    """The devices as an array [data, fsdp, tensor] that follows their links."""
    platform = devices[0].platform
    if platform == "tpu":
        return _arrange_slices(devices, sizes)
    if platform != "gpu":
        return mesh_utils.create_device_mesh(sizes, devices)
    tensor, node = sizes[2], _node_size(devices)
    if node % tensor:
        raise ConfigError(
            f"config.mesh.tensor={tensor} would cross nodes of {node} GPUs, and tensor parallelism "
            f"needs the links inside a node; use a divisor of {node}"
        )
    return np.array(devices, dtype=object).reshape(sizes)  # JAX lists them node by node


def _arrange_slices(devices: Sequence[Any], sizes: list[int]) -> np.ndarray:
    data, fsdp, tensor = sizes
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if data % slices:
        raise ConfigError(
            f"config.mesh.data={data} is not a multiple of the {slices} slices, and only data "
            f"crosses from one to the next; each has {len(devices) // slices} devices for fsdp x "
            f"tensor, so use data={slices}, or a multiple"
        )
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    return mesh_utils.create_hybrid_device_mesh(
        (data // slices, fsdp, tensor), (slices, 1, 1), devices, allow_split_physical_axes=True
    )


def _node_size(devices: Sequence[Any]) -> int:
    """GPUs that share NVLink.

    Real nodes differ in `slice_index`. Those of a topology only differ in their processes; where
    each process has one GPU, all of them are taken to share a node.
    """
    slices, processes = (
        len({getattr(device, name, 0) for device in devices})
        for name in ("slice_index", "process_index")
    )
    if slices == 1 and processes < len(devices):
        return len(devices) // processes
    return len(devices) // slices


def sizes_in_force() -> dict[str, int]:
    """Sizes of the mesh's axes over which the compiler still splits arrays; {} without a mesh.

    Inside a `jax.shard_map` over some axes, those are left out: an array there is what one of
    their devices holds.
    """
    ambient = jax.sharding.get_abstract_mesh()
    if ambient.empty:
        return {}
    return {name: ambient.shape[name] for name in AXES if name not in ambient.manual_axes}


def platform_in_force() -> str:
    """What the devices of the mesh in force are: "cpu", "tpu", "cuda"; empty without a mesh."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return "" if device is None else device.platform


def spec(mesh_shape: dict[str, int], axes: Axes, shape: tuple[int, ...]) -> P:
    """The PartitionSpec of an array with these logical axes, over the axes in `mesh_shape`.

    Raises `ConfigError` with the numbers where a dimension does not divide.
    """
    entries: list[tuple[str, ...] | None] = []
    for axis, size in zip(axes, shape, strict=True):
        names = () if axis is None else tuple(n for n in RULES[axis] if n in mesh_shape)
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
    sizes = sizes_in_force()
    if all(size == 1 for size in sizes.values()):
        return x
    return jax.lax.with_sharding_constraint(x, spec(sizes, axes, x.shape))


def spread(x: jax.Array) -> jax.Array:
    """Splits the first dimension over fsdp, the rest as the compiler will, filled up with zeros."""
    ways = sizes_in_force().get("fsdp", 1)
    if ways == 1:
        return x
    x = jnp.pad(x, ((0, -x.shape[0] % ways), *((0, 0),) * (x.ndim - 1)))
    rest = (P.UNCONSTRAINED,) * (x.ndim - 1)
    return jax.lax.with_sharding_constraint(x, P("fsdp", *rest))


def batch_ways() -> int:
    """How many ways the mesh in force splits the rows of a batch."""
    sizes = sizes_in_force()
    return sizes.get("data", 1) * sizes.get("fsdp", 1)


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
