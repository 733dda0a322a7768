"""Copies that are not the same are found, and who has them is told."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import models, optim, replicas, state
from jaxlm.config import OptimConfig
from jaxlm.replicas import Replicas, Share
from tests import tiny

DTYPES = (np.float32, ml_dtypes.bfloat16, np.int32, np.uint32, np.int8, np.bool_)
HOST = "pinned_host"


def place(mesh: Mesh, split: P, values: np.ndarray, flips: dict[int, int] | None = None) -> Any:
    """An array on the mesh; `flips`: by device, the word of its own copy in which bit 9 flips."""
    where, parts = NamedSharding(mesh, split), []
    order = list(mesh.devices.flat)
    for device, index in where.devices_indices_map(values.shape).items():
        part = values[index].copy()
        word = (flips or {}).get(order.index(device))
        if word is not None:
            part.view(np.uint32).reshape(-1)[word] ^= 1 << 9
        parts.append(jax.device_put(part, device))
    return jax.make_array_from_single_device_arrays(values.shape, where, parts)


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(8, 24)).astype(np.float32)


@pytest.mark.parametrize("word", [0, 191])
def test_a_majority_tells_who_is_wrong(values, word):
    mesh = tiny.mesh((8, 1, 1))
    tree = {"a": place(mesh, P(), values), "b": {"c": place(mesh, P(), values, {5: word})}}
    found = Replicas(mesh, tree)
    (difference,) = found.differences(tree)
    assert difference == ("b/c", (5,), 7)
    (line,) = replicas.lines([difference], found)
    assert line == (
        f"{mesh.devices.flat[5]} of process 0: differs from the 7 others that hold the same of b/c"
    )


def test_of_two_that_differ_both_are_named(values):
    """Split over fsdp and tensor: the halves of `data` hold the same."""
    mesh = tiny.mesh((2, 2, 2))
    tree = {"w": place(mesh, P("fsdp", "tensor"), values, {6: 3})}
    found = Replicas(mesh, tree)
    (difference,) = found.differences(tree)
    assert difference == ("w", (2, 6), 0)
    (line,) = replicas.lines([difference], found)
    assert "one of them, or more, has not what the others have of w" in line


def test_what_is_held_once_is_not_compared(values):
    mesh = tiny.mesh((1, 8, 1))
    tree = {"w": place(mesh, P("fsdp"), values, {6: 3}), "n": place(mesh, P(), values)}
    found = Replicas(mesh, tree)
    assert found.differences(tree) == []
    assert found.share == Share(values.nbytes, 2 * values.nbytes, (8, 8))
    whole = found.checksums(tree)
    clean = found.checksums({**tree, "w": place(mesh, P("fsdp"), values)})
    names = [found.names[n] for n in np.flatnonzero((whole != clean).any(0))]
    assert names == ["w"] and np.flatnonzero((whole != clean).any(1)).tolist() == [6]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_every_bit_and_every_place_counts(dtype):
    mesh = tiny.mesh((1, 1, 1))
    values = np.arange(2, 10).astype(dtype).reshape(2, 4)
    found = Replicas(mesh, {"x": place(mesh, P(), values)})
    checksum = lambda x: int(found.checksums({"x": place(mesh, P(), x)})[0, 0])  # noqa: E731
    sums = {checksum(values)}
    bits = [0] if dtype is np.bool_ else range(8 * values.itemsize)
    for bit in bits:
        other = values.copy()
        raw = other.view(np.dtype(f"u{values.itemsize}"))
        raw[1, 2] ^= raw.dtype.type(1) << raw.dtype.type(bit)
        sums.add(checksum(other))
    expected = 1 + len(bits)
    if dtype is not np.bool_:
        sums |= {checksum(values[::-1]), checksum(values[:, ::-1].copy())}
        expected += 2
    assert len(sums) == expected


@pytest.mark.parametrize("offload", [False, True])
def test_a_whole_state_compares(offload):
    """Its parameters on the devices, its optimizer's state there or in host memory."""
    model, optimizer = models.build(tiny.MODEL), optim.build(OptimConfig(offload=offload))
    mesh = tiny.mesh((2, 2, 2))
    with jax.set_mesh(mesh):
        shapes = state.abstract(model, optimizer, state.shardings(model, optimizer, mesh))
        made = jax.tree.map(lambda s: jax.device_put(np.ones(s.shape, s.dtype), s.sharding), shapes)
        found, size = Replicas(mesh, shapes), sum(x.nbytes for x in jax.tree.leaves(made))
        assert found.differences(made) == []
        assert found.share == Share(size, size, (2, 8))
        moment = made.opt_state.slots["mu"]["head"]["kernel"]
        assert (moment.sharding.memory_kind == HOST) == offload
        parts = [np.array(shard.data) for shard in moment.addressable_shards]
        parts[0][0, 0] = 2.0
        bad = [
            jax.device_put(part, shard.data.sharding)
            for part, shard in zip(parts, moment.addressable_shards, strict=True)
        ]
        made.opt_state.slots["mu"]["head"]["kernel"] = jax.make_array_from_single_device_arrays(
            moment.shape, moment.sharding, bad
        )
        assert [d.leaf for d in found.differences(made)] == ["opt_state/slots/mu/head/kernel"]
