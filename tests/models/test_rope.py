"""Rotary positions: scores depend on how far apart two tokens are, and on nothing else."""

import numpy as np
from jax import numpy as jnp

from jaxlm.models.rope import rotate, rotation

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
