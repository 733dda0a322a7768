"""Attention kernels through the compilers of real accelerators: they fit, at the stated cost."""

import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import mesh as mesh_lib
from jaxlm.config import MeshConfig
from jaxlm.ops.attention import ATTENTION, LSE, OUT, Need, choose
from jaxlm.ops.attention.kernel import pairs
from jaxlm.plan import target, walk

pytestmark = pytest.mark.compilers

B, T, H, N, K, LAYERS = 2, 2048, 8, 2, 128, 4
"""Of one device: rows, tokens, query and key-value heads, their width."""

BLOCK = {"splash": 512, "pallas": 128}


@pytest.mark.parametrize(
    ("name", "chips"),
    [
        ("splash", "v5e:2x2"),
        ("splash", "v5p:2x2x1"),
        ("splash", "v6e:2x2"),
        ("splash", "7x:2x2x1"),
        ("pallas", "a100:1x8"),
        ("pallas", "h100:1x8"),
        ("pallas", "b200:1x8"),
        ("cudnn", "h100:1x8"),
        ("cudnn", "b200:1x8"),
    ],
)
def test_four_layers_on_their_hardware(name, chips):
    """Each kernel runs once a layer, forward for good, and none holds the scores."""
    goal = target.parse(chips)
    mesh = mesh_lib.make(MeshConfig(data=1, fsdp=goal.size // 2, tensor=2), goal.devices())
    assert choose(name, mesh.devices.flat[0], Need(K, T, "bfloat16")) == name
    compiled = compile_layers(name, mesh)
    if name == "cudnn":  # a condition, whose other side is Pallas: once in each of two loops
        targets = re.findall(r'custom_call_target="(__cudnn[^"]+)"', compiled.as_text())
        assert sorted(targets) == [call.target for call in ATTENTION[name].calls]
    else:
        kernels = walk.count(compiled.as_text(), dict(mesh.shape)).kernels
        assert {k.name: k.count for k in kernels} == {c.name: LAYERS for c in ATTENTION[name].calls}
        products = 2 * K * B * H * pairs(T, BLOCK[name]) * LAYERS
        assert sum(k.count * k.flops for k in kernels) == 9 * products
    scores = B * H * T * T * 4
    assert compiled.memory_analysis().temp_size_in_bytes < scores


def compile_layers(name: str, mesh: jax.sharding.Mesh) -> jax.stages.Compiled:
    """The gradient of scanned layers of attention, whose residuals are saved by name."""
    sizes = dict(mesh.shape)
    rows, heads, kv_heads = B * sizes["fsdp"], H * sizes["tensor"], N * sizes["tensor"]
    policy = jax.checkpoint_policies.save_only_these_names(OUT, LSE)

    def loss(scales_L: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array):
        attend = ATTENTION[name].make(segments)

        def layer(x_BTHK: jax.Array, scale: jax.Array) -> tuple[jax.Array, None]:
            return attend(x_BTHK, k * scale, v), None

        last = jax.lax.scan(jax.checkpoint(layer, policy=policy), q, scales_L)[0]
        return last.astype(jnp.float32).sum()

    def shape(*dims: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
        axes = P("fsdp", None, "tensor") if len(dims) == 4 else P("fsdp" if len(dims) > 1 else None)
        return jax.ShapeDtypeStruct(dims, np.dtype(dtype), sharding=NamedSharding(mesh, axes))

    kv = shape(rows, T, kv_heads, K)
    arguments = (shape(LAYERS), shape(rows, T, heads, K), kv, kv, shape(rows, T, dtype="int32"))
    with jax.set_mesh(mesh):
        return jax.jit(jax.grad(loss, (0, 1, 2, 3))).lower(*arguments).compile()
