"""Where each token's document begins and ends inside its row, from the row's segments."""

import jax
from jax import numpy as jnp


def starts(segments_BT: jax.Array) -> jax.Array:
    """int32 [B, T]: the place of the first token of each token's document."""
    place_BT = _places(segments_BT)
    first_BT = jnp.diff(segments_BT, axis=1, prepend=segments_BT[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(first_BT, place_BT, 0), axis=1)


def ends(segments_BT: jax.Array) -> jax.Array:
    """int32 [B, T]: the place after the last token of each token's document."""
    place_BT = _places(segments_BT)
    last_BT = jnp.diff(segments_BT, axis=1, append=segments_BT[:, -1:] + 1) != 0
    length = segments_BT.shape[1]
    return jax.lax.cummin(jnp.where(last_BT, place_BT + 1, length), axis=1, reverse=True)


def _places(segments_BT: jax.Array) -> jax.Array:
    place_T = jnp.arange(segments_BT.shape[1], dtype=jnp.int32)
    return jnp.broadcast_to(place_T, segments_BT.shape)
