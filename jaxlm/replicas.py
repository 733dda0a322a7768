"""What several devices hold of a state, and whether it is the same: each sums up its own copy.

D devices in the order of the mesh, L leaves in the order of the tree.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import mesh as mesh_lib

GOLDEN = 0x9E3779B9
"""2^32 over the golden ratio: neighbouring places get numbers far apart."""


class Share(NamedTuple):
    """Of a state's bytes, each counted once."""

    comparable_bytes: int
    """Held by two devices or more."""
    all_bytes: int
    copies: tuple[int, int]
    """The fewest and the most holders of what is comparable; (1, 1) if nothing is."""


class Difference(NamedTuple):
    """Copies of a part of a leaf that are not the same."""

    leaf: str
    suspects: tuple[int, ...]
    """Devices by their place in the mesh: the minority, or all holders if there is no majority."""
    agreeing: int
    """Holders that the suspects differ from, and that are a majority; 0 if there is none."""


class Replicas:
    """The copies in trees whose arrays lie as in `where`, a tree of shapes with NamedShardings."""

    def __init__(self, mesh: Mesh, where: Any):
        leaves = jax.tree.leaves_with_path(where)
        self._mesh = mesh
        self._leaves = [leaf for _, leaf in leaves]
        self.names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
        places = {device: place for place, device in enumerate(mesh.devices.flat)}
        self._holders = [_holders(leaf, places) for leaf in self._leaves]
        self._sums = jax.jit(self._trace, static_argnums=1)

    @property
    def share(self) -> Share:
        """What `differences` looks at."""
        held = [
            (np.dtype(leaf.dtype).itemsize * int(np.prod(leaf.shape)), len(groups[0]))
            for leaf, groups in zip(self._leaves, self._holders, strict=True)
        ]
        copies = [n for _, n in held if n > 1] or [1]
        return Share(
            sum(size for size, n in held if n > 1),
            sum(size for size, _ in held),
            (min(copies), max(copies)),
        )

    def checksums(self, tree: Any) -> np.ndarray:
        """uint32[D, L]: of what each device holds of each leaf; all processes call it and wait.

        A changed word changes the sum, several do with a probability of 1 - 2^-32. What lies in
        host memory goes through the device, a leaf at a time.
        """
        return self._checksums(tree, range(len(self.names)))

    def differences(self, tree: Any) -> list[Difference]:
        """Parts of a tree whose holders have not the same; all processes call it and wait."""
        shared = [n for n, groups in enumerate(self._holders) if len(groups[0]) > 1]
        sums = self._checksums(tree, shared)
        found = (
            _difference(self.names[n], group, sums[list(group), n])
            for n in shared
            for group in self._holders[n]
        )
        return [difference for difference in found if difference is not None]

    def device(self, place: int) -> str:
        """The name of the device at this place of the mesh, and whose it is."""
        device = self._mesh.devices.flat[place]
        return f"{device} of process {device.process_index}"

    def _checksums(self, tree: Any, numbers: Sequence[int]) -> np.ndarray:
        """As `checksums`, of the leaves of these numbers; 0 of the others."""
        leaves = jax.tree.leaves(tree)
        found = np.zeros((self._mesh.size, len(leaves)), np.uint32)
        here = [n for n in numbers if not _on_host(leaves[n])]
        for group in (here, *([n] for n in numbers if n not in here)):
            if group:
                found[:, group] = self._sums([leaves[n] for n in group], tuple(group))
        return found

    def _trace(self, leaves: list[jax.Array], numbers: tuple[int, ...]) -> jax.Array:
        """uint32[D, len(numbers)], whole on each device."""
        specs = [self._leaves[n].sharding.spec for n in numbers]
        leaves = [
            jax.device_put(x, jax.memory.Space.Device) if _on_host(self._leaves[n]) else x
            for x, n in zip(leaves, numbers, strict=True)
        ]
        # Inside, a program knows of one device alone: it cannot sum up one copy for all.
        own = jax.shard_map(
            lambda parts: jnp.stack([_checksum(part) for part in parts])[None],
            mesh=self._mesh,
            in_specs=(specs,),
            out_specs=P(mesh_lib.AXES, None),
            check_vma=False,
        )
        whole = mesh_lib.replicated(self._mesh)
        return jax.lax.with_sharding_constraint(own(leaves), whole)


def _holders(leaf: Any, places: dict[Any, int]) -> list[tuple[int, ...]]:
    """Places of the devices that hold the same part of a leaf, for each part."""
    assert isinstance(leaf.sharding, NamedSharding)
    groups: dict[Any, list[int]] = {}
    for device, index in leaf.sharding.devices_indices_map(leaf.shape).items():
        part = tuple(s.indices(size) for s, size in zip(index, leaf.shape, strict=True))
        groups.setdefault(part, []).append(places[device])
    return [tuple(sorted(group)) for group in groups.values()]


def _difference(name: str, group: Sequence[int], sums: np.ndarray) -> Difference | None:
    (value, count), *others = Counter(sums.tolist()).most_common()
    if not others:
        return None
    if 2 * count <= len(group):
        return Difference(name, tuple(group), 0)
    suspects = (place for place, s in zip(group, sums.tolist(), strict=True) if s != value)
    return Difference(name, tuple(suspects), count)


def _on_host(leaf: Any) -> bool:
    return leaf.sharding.memory_kind == "pinned_host"


def _checksum(x: jax.Array) -> jax.Array:
    """uint32: the sum of all words, each mixed with its place by MurmurHash3's finalizer.

    For a given place the mixing is one to one, so that a single changed word is never missed.
    """
    words = _words(x)
    place = jnp.zeros(words.shape, jnp.uint32)
    for dim in range(words.ndim):
        place = place * np.uint32(words.shape[dim]) + jax.lax.broadcasted_iota(
            jnp.uint32, words.shape, dim
        )
    mixed = words + place * np.uint32(GOLDEN)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return mixed.sum(dtype=jnp.uint32)


def _words(x: jax.Array) -> jax.Array:
    """The bits of each element as a uint32, or as several."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(
        x, {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    )
    return bits.astype(jnp.uint32)


def lines(differences: Sequence[Difference], replicas: Replicas) -> Iterator[str]:
    """What is wrong where, a line for each set of suspects."""
    by: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for leaf, suspects, agreeing in differences:
        by.setdefault((suspects, agreeing), []).append(leaf)
    for (suspects, agreeing), leaves in by.items():
        names = ", ".join(replicas.device(place) for place in suspects)
        more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
        where = ", ".join(leaves[:3]) + more
        if agreeing:
            yield f"{names}: differs from the {agreeing} others that hold the same of {where}"
        else:
            yield f"{names}: one of them, or more, has not what the others have of {where}"
