"""Rotary positions: scores depend on how far apart two tokens are, and on nothing else."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm.ops.rope import rotate, rotation
from tests import tiny

K = 8


def turned(x: np.ndarray, position: int) -> np.ndarray:
    turn = rotation(jnp.array([[position]]), K, theta=100.0)
    return np.asarray(rotate(jnp.asarray(x, jnp.float32).reshape(1, 1, 1, K), turn)).reshape(K)


def test_scores_depend_on_the_distance_alone():
    q, k = np.random.default_rng(0).normal(size=(2, K))
    near = [turned(q, p + 3) @ turned(k, p) for p in (0, 1, 10, 100)]
    np.testing.assert_allclose(near, near[0], rtol=1e-4)
    assert abs(turned(q, 4) @ turned(k, 0) - near[0]) > 0.01


def test_position_zero_turns_nothing_and_lengths_are_kept():
    x = np.random.default_rng(0).normal(size=K).astype(np.float32)
    assert (turned(x, 0) == x).all()
    np.testing.assert_allclose(np.linalg.norm(turned(x, 77)), np.linalg.norm(x), rtol=1e-6)


def test_pairs_are_the_two_halves_with_falling_frequencies():
    """Pair i is (x[i], x[i + K/2]), turned by position * theta**(-2i/K)."""
    for i in range(K // 2):
        found = turned(np.eye(K)[i], 3)
        angle = 3 * 100.0 ** (-2 * i / K)
        np.testing.assert_allclose(
            found[[i, i + K // 2]], [np.cos(angle), np.sin(angle)], rtol=1e-5
        )
        assert np.count_nonzero(found) == 2


def test_angles_are_float32_in_bfloat16():
    """In bfloat16 position 1,001 would be 1,000."""
    x = jnp.ones((1, 2, 1, K), jnp.bfloat16)
    found = rotate(x, rotation(jnp.array([[1000, 1001]]), K, theta=100.0))
    assert found.dtype == jnp.bfloat16
    assert abs(float(found[0, 0, 0, 0] - found[0, 1, 0, 0])) > 0.1


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.008)])
def test_by_hand_for_cpus_it_is_the_same(dtype, tolerance):
    """Value and gradient."""
    random = np.random.default_rng(0)
    x, g = (jnp.asarray(random.normal(size=(2, 5, 3, K)), dtype) for _ in range(2))
    turn = rotation(jnp.array([[0, 1, 2, 0, 1000], [7, 8, 9, 10, 11]]), K, theta=100.0)

    def both(x: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, pull = jax.vjp(lambda x: rotate(x, turn), x)
        return y, pull(g)[0]

    expected = both(x, g)
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        found = jax.jit(both)(x, g)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == jnp.dtype(dtype)
        one, other = one.astype(jnp.float32), other.astype(jnp.float32)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
