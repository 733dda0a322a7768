"""Meshes and shardings, and what is refused with its numbers."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm import mesh as mesh_lib
from jaxlm import models, optim, state
from jaxlm.config import MeshConfig, OptimConfig
from jaxlm.mesh import AXES, RULES
from jaxlm.schema import ConfigError
from tests import tiny
from tests.tiny import MODEL


@pytest.mark.parametrize(
    ("cfg", "shape"),
    [
        (MeshConfig(), (1, 8, 1)),
        (MeshConfig(-1, 2, 2), (2, 2, 2)),
        (MeshConfig(2, 1, -1), (2, 1, 4)),
        (MeshConfig(8, 1, 1), (8, 1, 1)),
    ],
)
def test_one_axis_may_take_the_rest_of_the_devices(cfg, shape):
    mesh = mesh_lib.make(cfg)
    assert (mesh.axis_names, tuple(mesh.shape.values())) == (AXES, shape)
    assert {d.id for d in mesh.devices.flat} == {d.id for d in jax.devices()}


@pytest.mark.parametrize(
    ("cfg", "sizes"),
    [
        (MeshConfig(2, 2, 1), "data=2 x fsdp=2 x tensor=1"),
        (MeshConfig(3, -1, 1), "data=3 x fsdp=-1 x tensor=1"),
        (MeshConfig(16, -1, 1), "data=16 x fsdp=-1 x tensor=1"),
    ],
)
def test_a_mesh_that_does_not_use_every_device_is_refused(cfg, sizes):
    with pytest.raises(ConfigError) as error:
        mesh_lib.make(cfg)
    assert str(error.value) == (
        f"config.mesh: {sizes} does not make 8 devices; change one, or set one to -1 for the rest"
    )


@dataclass(frozen=True)
class Device:
    """What `mesh.make` looks at in a device."""

    id: int
    platform: str
    process_index: int = 0
    slice_index: int = 0


def nodes(count: int, gpus: int) -> list[Device]:
    """GPUs as JAX lists them on a cluster: a process a node, each a slice of its own."""
    return [Device(i, "gpu", i // gpus, i // gpus) for i in range(count * gpus)]


def test_tensor_stays_inside_a_node_and_data_is_outermost():
    mesh = mesh_lib.make(MeshConfig(2, -1, 4), nodes(4, 8))
    ids = np.vectorize(lambda device: device.id)(mesh.devices)
    assert ids.shape == (2, 4, 4)
    assert (ids == np.arange(32).reshape(2, 4, 4)).all()  # fsdp crosses to the next node


@pytest.mark.parametrize(
    ("devices", "tensor", "node"),
    [
        (nodes(2, 8), 16, 8),
        (nodes(8, 1), 2, 1),
        ([Device(i, "gpu", i // 4) for i in range(8)], 8, 4),  # of a topology: no slices
    ],
)
def test_tensor_across_nodes_is_refused(devices, tensor, node):
    with pytest.raises(ConfigError) as error:
        mesh_lib.make(MeshConfig(1, -1, tensor), devices)
    assert str(error.value) == (
        f"config.mesh.tensor={tensor} would cross nodes of {node} GPUs, and tensor parallelism "
        f"needs the links inside a node; use a divisor of {node}"
    )


def test_processes_of_one_gpu_each_share_a_node():
    devices = [Device(i, "gpu", i) for i in range(8)]
    assert mesh_lib.make(MeshConfig(1, 1, 8), devices).shape["tensor"] == 8


def test_data_that_leaves_slices_out_is_refused():
    devices = [Device(i, "tpu", i // 4, i // 16) for i in range(32)]
    with pytest.raises(ConfigError) as error:
        mesh_lib.make(MeshConfig(1, -1, 2), devices)
    assert str(error.value) == (
        "config.mesh.data=1 is not a multiple of the 2 slices, and only data crosses from one to "
        "the next; each has 16 devices for fsdp x tensor, so use data=2, or a multiple"
    )


def test_a_dimension_goes_over_the_axes_of_its_rule():
    sizes = {"data": 2, "fsdp": 2, "tensor": 2}
    assert mesh_lib.spec(sizes, ("batch", None, "heads"), (8, 5, 4)) == P(
        ("data", "fsdp"), None, ("tensor",)
    )
    assert mesh_lib.spec(sizes, ("table_vocab", "table_embed"), (7, 8)) == P(
        None, ("tensor", "fsdp")
    )
    assert {name for names in RULES.values() for name in names} == set(AXES)


def test_a_dimension_that_does_not_divide_is_refused_with_its_numbers():
    with pytest.raises(ConfigError) as error:
        mesh_lib.spec({"data": 1, "fsdp": 8, "tensor": 1}, ("embed", "mlp"), (36, 48))
    assert str(error.value) == (
        "axis 'embed' of size 36 (shape (36, 48)) cannot be split 8 ways over mesh axes ('fsdp',); "
        "choose a mesh that divides it"
    )


def test_key_value_heads_are_replicated_where_they_are_too_few():
    sizes = {"data": 1, "fsdp": 1, "tensor": 8}
    assert mesh_lib.spec(sizes, ("embed", "kv_heads", None), (32, 4, 4))[1] is None
    with pytest.raises(ConfigError, match=r"axis 'heads' of size 4 .* 8 ways over .*'tensor'"):
        mesh_lib.spec(sizes, ("embed", "heads", None), (32, 4, 4))


@pytest.mark.parametrize(
    ("shape", "changes", "axis"),
    [
        ((1, 8, 1), {"d_model": 20, "head_dim": 4}, "embed"),
        ((1, 1, 8), {"d_ff": 52}, "mlp"),
        ((1, 1, 8), {"n_heads": 4, "n_kv_heads": 4, "head_dim": 8}, "heads"),
    ],
)
def test_a_model_that_a_mesh_cannot_split_is_refused_before_it_is_made(shape, changes, axis):
    model, optimizer = models.build(replace(MODEL, **changes)), optim.build(OptimConfig())
    with pytest.raises(ConfigError, match=rf"axis '{axis}' of size \d+ .* cannot be split 8 ways"):
        state.shardings(model, optimizer, tiny.mesh(shape))


@pytest.mark.parametrize(
    ("batch", "rows", "expected"), [(32, None, 1), (32, 8, 1), (32, 2, 4), (4, 1, 1)]
)
def test_microbatches(batch, rows, expected):
    """4 ways to split a batch."""
    assert mesh_lib.microbatches(tiny.mesh((2, 2, 2)), batch, rows) == expected


@pytest.mark.parametrize(
    ("batch", "rows", "message"),
    [
        (
            30,
            None,
            "config.train.batch_size=30 cannot be split over data x fsdp = 4 devices; "
            "use a multiple of 4",
        ),
        (
            32,
            3,
            "config.train.rows_per_device=3: each device has 8 rows of the batch of 32; "
            "use a divisor of 8",
        ),
        (32, 0, "config.train.rows_per_device=0: each device has 8 rows of the batch of 32; "
                "use a divisor of 8"),
    ],
)  # fmt: skip
def test_a_batch_that_the_mesh_cannot_split_is_refused(batch, rows, message):
    with pytest.raises(ConfigError) as error:
        mesh_lib.microbatches(tiny.mesh((2, 2, 2)), batch, rows)
    assert str(error.value) == message


def test_activations_are_pinned_on_a_mesh_and_left_alone_without_one():
    x = jnp.ones((8, 4))
    pin = lambda x: mesh_lib.constrain(x, "batch", "mlp")  # noqa: E731
    assert pin(x) is x and mesh_lib.batch_ways() == 1
    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        assert jax.jit(pin)(x).sharding.spec == P(("data", "fsdp"), "tensor")
        assert mesh_lib.batch_ways() == 4


def test_inside_of_an_axis_it_is_not_there():
    """A step sums over `data` by hand: there, the compiler has the other axes to split over."""
    seen = {}

    def replica(x):
        seen.update(mesh_lib.sizes_in_force(), ways=mesh_lib.batch_ways())
        return mesh_lib.constrain(x, "batch", "mlp")

    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        assert mesh_lib.sizes_in_force() == {"data": 2, "fsdp": 2, "tensor": 2}
        inside = jax.shard_map(replica, in_specs=P("data"), out_specs=P("data"),
                               axis_names={"data"})  # fmt: skip
        found = jax.jit(inside)(jnp.ones((8, 4)))
    assert seen == {"fsdp": 2, "tensor": 2, "ways": 2}
    assert found.sharding.spec == P(("data", "fsdp"), "tensor")
    assert mesh_lib.sizes_in_force() == {}
