"""The real compilers take the options, and a program shows what the options are for."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import compiler
from jaxlm import mesh as mesh_lib
from jaxlm.config import MeshConfig
from jaxlm.plan import target, walk

TARGETS = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2", "7x:2x2x1", "a100:1x4", "h100:1x4", "h200:1x4",
           "b200:1x4")  # fmt: skip
D = 2048
MESH = {"data": 2, "fsdp": 4, "tensor": 1}


@pytest.mark.system
@pytest.mark.parametrize("name", TARGETS)
def test_the_compiler_knows_every_option(name, tmp_path):
    devices = target.parse(name).devices()
    options = compiler.options(devices[0])
    split = NamedSharding(Mesh(np.array(devices), ("all",)), P("all"))
    x = jax.ShapeDtypeStruct((len(devices) * 8, 128), jnp.float32, sharding=split)
    lowered = jax.jit(lambda x: 2 * x).lower(x)
    assert lowered.compile(compiler_options=options)
    assert lowered.compile(compiler_options=compiler.options(devices[0], tmp_path))
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        lowered.compile(compiler_options={**options, "xla_not_an_option": True})


@pytest.mark.compilers
def test_gathers_and_reductions_run_beside_the_products():
    """Of a v5p; without the options the same program waits for each."""
    lowered, device = two_layers("v5p:2x2x2")
    for options, beside in ((compiler.options(device), True), ({}, False)):
        text = lowered.compile(compiler_options=options).as_text()
        found = [c for c in walk.count(text, MESH).collectives if c.payload_bytes > 2**20]
        kinds = {(c.kind, c.axes): c.asynchronous for c in found if c.kind != "collective-permute"}
        assert kinds == {
            ("all-gather", ("fsdp",)): beside,
            ("reduce-scatter", ("fsdp",)): beside,
            ("all-reduce", ("data",)): beside,
        }
        scattered = [c for c in found if c.kind == "reduce-scatter"]
        assert {c.fused for c in scattered} == {not beside}


def two_layers(name: str) -> tuple[jax.stages.Lowered, Any]:
    """Weights gathered a layer at a time, gradients scattered and then summed over data."""
    devices = target.parse(name).devices()
    mesh = mesh_lib.make(MeshConfig(*MESH.values()), devices)  # in rings, which gathers want
    pin = jax.lax.with_sharding_constraint

    def gather(w: jax.Array, *split: str | None) -> jax.Array:
        return pin(pin(w.astype(jnp.bfloat16), P(*split)), P(None, None))

    def loss(weights: Any, x_BD: jax.Array) -> jax.Array:
        def layer(x_BD: jax.Array, weights: Any) -> tuple[jax.Array, None]:
            # Two of them: a gather that no product could hide is left to the TensorCore.
            h_BF = jax.nn.silu(x_BD @ gather(weights["up"], "fsdp", None))
            return pin(x_BD + h_BF @ gather(weights["down"], None, "fsdp"), P("fsdp", None)), None

        return jnp.square(jax.lax.scan(jax.checkpoint(layer), x_BD, weights)[0]).sum()

    def step(weights: Any, x_BD: jax.Array) -> Any:
        grads = jax.shard_map(
            lambda w, x: jax.lax.psum(jax.grad(loss)(w, x), "data"),
            in_specs=(P(), P("data")),
            out_specs=P(),
            axis_names={"data"},
            check_vma=False,
        )(weights, x_BD)
        return jax.tree.map(jnp.subtract, weights, grads)

    def array(shape: tuple[int, ...], dtype: Any, *split: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*split)))

    weights = {
        "up": array((2, D, 4 * D), jnp.float32, None, "fsdp", None),
        "down": array((2, 4 * D, D), jnp.float32, None, None, "fsdp"),
    }
    x = array((4 * D, D), jnp.bfloat16, ("data", "fsdp"), None)
    where = jax.tree.map(lambda w: w.sharding, weights)
    with jax.set_mesh(mesh):
        return jax.jit(step, out_shardings=where).lower(weights, x), devices[0]
