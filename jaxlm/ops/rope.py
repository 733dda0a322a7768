"""Rotary position embedding (Su et al., 2021), the two halves of a head rotated together."""

import jax
from jax import numpy as jnp

from jaxlm.mesh import platform_in_force
from jaxlm.ops.passes import rounded

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
    if platform_in_force() == "cpu":
        return _by_hand(x_BTHK, cos, sin)
    a, b = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BTHK.dtype)


@jax.custom_vjp
def _by_hand(x_BTHK: jax.Array, cos_BT1k: jax.Array, sin_BT1k: jax.Array) -> jax.Array:
    """The same, each half rounded before the two are joined: the compiler fuses no joining."""
    a, b = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    halves = (a * cos_BT1k - b * sin_BT1k, b * cos_BT1k + a * sin_BT1k)
    return jnp.concatenate([rounded(half, x_BTHK.dtype) for half in halves], axis=-1)


def _forward(x_BTHK: jax.Array, *turn: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _by_hand(x_BTHK, *turn), turn


def _backward(turn: tuple[jax.Array, ...], g_BTHK: jax.Array) -> tuple[jax.Array, None, None]:
    """Turned back. The angles have no gradient."""
    cos_BT1k, sin_BT1k = turn
    return _by_hand(g_BTHK, cos_BT1k, -sin_BT1k), None, None


_by_hand.defvjp(_forward, _backward)
