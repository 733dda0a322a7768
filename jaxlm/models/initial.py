"""Initial weights made from integers: the same bits on every mesh, compiler and device.

The usual normal draw goes through a logarithm and polynomials, which a compiler may round in one
way for a whole array and in another for its parts.
"""

import math

import jax
import numpy as np
from jax import numpy as jnp

WORDS = 4
"""32-bit draws a weight, each two 16-bit terms of its sum."""


def normal(key: jax.Array, shape: tuple[int, ...], std: float) -> jax.Array:
    """Float32, nearly normal(0, std): a centred sum of 8 uniform integers, never beyond 4.9 std.

    Integer sums are exact, and the one product rounds once.
    """
    words = jax.random.bits(key, (WORDS, *shape), jnp.uint32)
    total = ((words & 0xFFFF) + (words >> 16)).sum(0).astype(jnp.int32)
    centred = 2 * total - 2 * WORDS * 0xFFFF  # below 2**24: a float32 holds it
    spread = 2 * math.sqrt(2 * WORDS * (2**32 - 1) / 12)
    return centred.astype(jnp.float32) * np.float32(std / spread)
