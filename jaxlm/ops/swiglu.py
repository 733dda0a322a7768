"""The gate of SwiGLU (Shazeer, 2020)."""

from collections.abc import Callable

import jax
from jax import numpy as jnp

from jaxlm.mesh import platform_in_force
from jaxlm.ops.passes import again, rounded


def swiglu[T](x: T, gate: Callable[[T], jax.Array], up: Callable[[T], jax.Array]) -> jax.Array:
    """silu(gate(x)) * up(x), in their type; of any shape.

    Takes the two projections, not what they give: `up` comes after the gate is computed, so that
    programs that do without `_by_hand` keep their order.
    """
    if platform_in_force() == "cpu":
        return _by_hand(gate(x), up(x))
    return jax.nn.silu(gate(x)) * up(x)


@jax.custom_vjp
def _by_hand(gate: jax.Array, up: jax.Array) -> jax.Array:
    """In float32 between one reading and one writing: a pass for each of value and gradients."""
    return _forward(gate, up)[0]


def _forward(gate: jax.Array, up: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    g, u = gate.astype(jnp.float32), up.astype(jnp.float32)
    return rounded(g * _sigmoid(g) * u, gate.dtype), (gate, up)


def _backward(saved: tuple[jax.Array, jax.Array], h: jax.Array) -> tuple[jax.Array, jax.Array]:
    (gate, up), h = jax.lax.optimization_barrier(saved), h.astype(jnp.float32)
    g = gate.astype(jnp.float32)
    of_up = rounded(h * (g * _sigmoid(g)), up.dtype)
    gate, of_up = again(gate, of_up)
    g, u = gate.astype(jnp.float32), up.astype(jnp.float32)
    share = _sigmoid(g)
    of_gate = h * (share * (1 + g * (1 - share))) * u
    return rounded(of_gate, gate.dtype), of_up


def _sigmoid(x: jax.Array) -> jax.Array:
    return 1 / (1 + jnp.exp(-x))


_by_hand.defvjp(_forward, _backward)
