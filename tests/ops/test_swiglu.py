"""The gate by hand, for CPUs, beside that of JAX in float32."""

from operator import itemgetter

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm.ops import swiglu as lib
from tests import tiny

SHAPE = (2, 8, 24)


def swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    return lib.swiglu((gate, up), itemgetter(0), itemgetter(1))


def plain(gate: jax.Array, up: jax.Array) -> jax.Array:
    return jax.nn.silu(gate) * up


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 0.008)])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_value_and_gradients(dtype, tolerance, size):
    random = np.random.default_rng(0)
    gate, up, g = (jnp.asarray(size * random.normal(size=SHAPE), dtype) for _ in range(3))
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        program = jax.jit(lambda *given: jax.vjp(swiglu, *given[:2])[1](given[2]))
        found = (jax.jit(swiglu)(gate, up), *program(gate, up, g))
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    gate, up, g = (x.astype(jnp.float32) for x in (gate, up, g))
    expected = (plain(gate, up), *jax.vjp(plain, gate, up)[1](g))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x.astype(jnp.float32), y, rtol=tolerance, atol=tolerance)


def test_where_the_gate_is_shut_or_wide_open():
    """exp(-gate) is infinite, and nothing becomes NaN, whatever it is multiplied with."""
    gate, up = jnp.array([-1e30, -200.0, 0.0, 200.0, 1e30]), jnp.full(5, 1e7)
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        value, pull = jax.vjp(jax.jit(swiglu), gate, up)
        of_gate, of_up = pull(jnp.full(5, 2.0))
    np.testing.assert_allclose(value, [0, 0, 0, 2e9, 1e37])
    np.testing.assert_allclose(of_gate, [0, 0, 1e7, 2e7, 2e7])
    np.testing.assert_allclose(of_up, [0, 0, 0, 400, 2e30])


@pytest.mark.parametrize("platform", ["tpu", "cuda", ""])
def test_elsewhere_it_is_jaxs_own(monkeypatch, platform):
    monkeypatch.setattr("jaxlm.ops.swiglu.platform_in_force", lambda: platform)
    x = jnp.ones(SHAPE, jnp.bfloat16)
    assert str(jax.make_jaxpr(swiglu)(x, x)) == str(jax.make_jaxpr(plain)(x, x))
