"""Rotary position embedding (Su et al., 2021), the two halves of a head rotated together."""

import jax
from jax import numpy as jnp

type Rotation = tuple[jax.Array, jax.Array]
"""cos and sin, float32 [B, T, K/2]."""


def rotation(positions_BT: jax.Array, head_size: int, theta: float) -> Rotation:
    """The angles of each position, counted from the start of its document."""
    exponent = jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size
    angle = positions_BT.astype(jnp.float32)[..., None] * (theta**-exponent)[None, None]
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BTHK: jax.Array, turn: Rotation) -> jax.Array:
    """x turned by its position, in float32, returned in the type of x."""
    cos, sin = turn[0][:, :, None], turn[1][:, :, None]
    a, b = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BTHK.dtype)
