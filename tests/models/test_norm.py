"""RMSNorm against float64, and its float32 inside."""

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from jaxlm.models.norm import RMSNorm

D = 64


def oracle(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_computes_in_float32_and_returns_the_type_of_x(dtype, rtol):
    """Within one rounding to the result's type: float32 inside adds nothing to that."""
    norm = RMSNorm(D, 1e-5)
    random = np.random.default_rng(0)
    scale = random.normal(1, 0.3, D).astype(np.float32)
    norm.scale[...] = jnp.asarray(scale)
    x = jnp.asarray(random.normal(300, 40, (3, 5, D)), dtype)
    found = norm(x)
    assert found.dtype == jnp.dtype(dtype)
    expected = oracle(np.asarray(x, np.float64), scale, 1e-5)
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=rtol)


def test_zeros_stay_zeros_with_a_finite_gradient():
    norm = RMSNorm(D, 1e-5)
    x = jnp.zeros((1, D))
    assert not np.asarray(norm(x)).any()
    assert np.isfinite(jax.grad(lambda x: norm(x).sum())(x)).all()


def test_starts_at_one_and_knows_its_axes():
    norm = RMSNorm(D, 1e-5, ("head_dim",))
    assert (np.asarray(norm.scale[...]) == 1).all()
    assert nnx.state(norm)["scale"].get_metadata()["axes"] == ("head_dim",)
