"""The product, its cast and its gather."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm import mesh as mesh_lib
from jaxlm import step as steps
from jaxlm.config import LossConfig
from jaxlm.ops.dense import choose, dense, gather
from tests import tiny


@pytest.mark.parametrize(
    ("x_shape", "kernel_shape", "in_dims", "sum_over"),
    [
        ((2, 3, 8), (8, 5), 1, "btd,df->btf"),
        ((2, 3, 8), (8, 4, 6), 1, "btd,dhk->bthk"),
        ((2, 3, 4, 6), (4, 6, 8), 2, "bthk,hkd->btd"),
    ],
)
def test_contracts_the_first_dimensions_of_the_kernel(x_shape, kernel_shape, in_dims, sum_over):
    random = np.random.default_rng(0)
    x, kernel = random.normal(size=x_shape), random.normal(size=kernel_shape)
    axes = (None,) * len(kernel_shape)
    found = dense(jnp.asarray(x, jnp.float32), jnp.asarray(kernel, jnp.float32), axes, in_dims)
    np.testing.assert_allclose(found, np.einsum(sum_over, x, kernel), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("tied", "blocks"), [(False, 1), (True, 1), (False, 2)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_product_of_a_step_on_a_cpu_is_row_by_row(dtype, tied, blocks):
    """Forward and backward: other forms take XLA's CPU compiler many times as long."""
    model = dataclasses.replace(tiny.MODEL, compute_dtype=dtype, tied_embeddings=tied)
    step = tiny.step_def(model, loss=LossConfig(vocab_blocks=blocks))
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        program = jax.jit(lambda params, rows: steps.gradients(params, step, rows, None))
        text = program.lower(step.model.abstract(), tiny.ids(seq_len=32)).compile().as_text()
    forms = re.findall(r" dot\(.*lhs_contracting_dims={(\d)}.*rhs_contracting_dims={(\d)}", text)
    assert len(forms) >= 30
    assert {(int(left), int(right)) for left, right in forms} <= {(1, 0), (3, 2)}, forms


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_elsewhere_products_are_the_compilers(platform):
    assert choose(platform, jnp.dtype("bfloat16")) == choose("", jnp.dtype("float32")) == "plain"


def test_the_product_has_the_type_of_x():
    y = dense(jnp.ones((2, 4), jnp.bfloat16), jnp.ones((4, 3), jnp.float32), ("embed", "mlp"))
    assert y.dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("axes", "shape", "whole"),
    [
        (("embed", "mlp"), (32, 64), P(None, "tensor")),
        (("mlp", "embed"), (64, 32), P("tensor", None)),
    ],
)
def test_a_kernel_is_cast_before_it_is_gathered(axes, shape, whole):
    """Half the bytes cross the links; the other axes stay split. What is gathered comes first."""
    mesh = tiny.mesh((2, 2, 2))
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    kernel = jax.device_put(values, mesh_lib.sharding(mesh, axes, shape))
    with jax.set_mesh(mesh):
        program = jax.jit(lambda w: gather(w, axes, jnp.bfloat16)).trace(kernel)
        pins = [e for e in program.jaxpr.eqns if e.primitive.name == "sharding_constraint"]
        gathered = program.lower().compile()(kernel)
    assert [str(e.invars[0].aval.dtype) for e in pins] == ["bfloat16", "bfloat16"]
    assert [e.params["sharding"].spec for e in pins] == [P(("fsdp",), ("tensor",)),
                                                         P(None, ("tensor",))]  # fmt: skip
    assert gathered.sharding.is_equivalent_to(jax.NamedSharding(mesh, whole), 2)
    np.testing.assert_array_equal(gathered, values.astype(jnp.bfloat16))
