"""Initial weights: nearly normal, from integers alone."""

import jax
import numpy as np
from jax import numpy as jnp

from jaxlm.models.initial import normal


def test_weights_are_nearly_normal():
    x = np.asarray(normal(jax.random.key(0), (400, 1000), std=0.5)) / 0.5
    assert x.dtype == np.float32
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01
    assert abs((x**3).mean()) < 0.02 and abs((x**4).mean() - (3 - 0.15)) < 0.05
    assert abs((abs(x) > 2).mean() - 0.0455) < 0.003 and 3.5 < abs(x).max() < 4.9


def test_the_bits_are_those_of_integer_sums():
    """What numpy makes of the same words."""
    key = jax.random.key(3)
    words = np.asarray(jax.random.bits(key, (4, 7, 5), jnp.uint32)).astype(np.int64)
    centred = 2 * ((words & 0xFFFF) + (words >> 16)).sum(0) - 8 * 0xFFFF
    scale = np.float32(0.02 / (2 * np.sqrt(8 * (2**32 - 1) / 12)))
    found = np.asarray(normal(key, (7, 5), std=0.02))
    assert found.tobytes() == (centred.astype(np.float32) * scale).tobytes()
