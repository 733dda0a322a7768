"""Sums over microbatches and replicas: their value, and what crosses between replicas."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import mesh as mesh_lib
from jaxlm.accumulate import accumulate
from tests import tiny
from tests.jaxprs import equations

B, D = 16, 3


def outer(shared: jax.Array, part: tuple[jax.Array, None]) -> tuple[jax.Array, jax.Array]:
    """Sums that depend on all of a part's rows."""
    x_bD, _ = part
    return shared * jnp.einsum("bd,be->de", x_bD, x_bD), jnp.float32(x_bD.shape[0])


def total(x_BD: jax.Array, microbatches: int) -> tuple[jax.Array, jax.Array]:
    return accumulate(outer, jnp.float32(2.0), (x_BD, None), microbatches)


@pytest.mark.parametrize("shape", [None, (1, 4, 2), (2, 2, 2)])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_the_sum_is_over_all_rows(shape, microbatches):
    x_BD = np.random.default_rng(0).integers(-9, 9, (B, D)).astype(np.float32)
    if shape is None:
        found, parts = total(x_BD, microbatches)
    else:
        mesh = tiny.mesh(shape)
        with jax.set_mesh(mesh):
            placed = jax.device_put(x_BD, mesh_lib.rows_sharding(mesh))
            found, parts = jax.jit(total, static_argnums=1)(placed, microbatches)
    np.testing.assert_array_equal(found, 2 * x_BD.T @ x_BD)
    assert parts == B


def test_replicas_meet_once_in_float32_outside_of_the_loop():
    with jax.set_mesh(tiny.mesh((2, 2, 2))):
        program = jax.make_jaxpr(lambda x: total(x, 4))(jnp.ones((B, D))).jaxpr
    assert max(loops for _, loops in equations(program)) == 1
    sums = [(e, loops) for e, loops in equations(program) if "psum" in e.primitive.name]
    for equation, loops in sums:
        assert equation.params["axes"] == ("data",)
        assert loops == 0
    summed = [str(v.aval) for equation, _ in sums for v in equation.invars]
    assert summed == ["float32[3,3]", "float32[]"]


def test_each_device_keeps_its_own_rows():
    """A microbatch is the next rows of each device, not the next rows of the batch."""
    seen = jnp.arange(B, dtype=jnp.float32)

    def first(shared, rows_b):
        return rows_b[:1]

    mesh = tiny.mesh((1, 4, 2))
    with jax.set_mesh(mesh):
        placed = jax.device_put(seen, jax.NamedSharding(mesh, jax.P(("data", "fsdp"))))
        text = jax.jit(lambda x: accumulate(first, None, x, 2)).lower(placed).compile().as_text()
    assert "all-to-all" not in text and "collective-permute" not in text
