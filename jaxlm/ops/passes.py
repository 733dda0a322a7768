"""How often XLA's CPU compiler goes over memory: what computations by hand for CPUs are made of.

It writes down what two others take, in float32 where it computes in it, so that the one cast of a
bfloat16 array that a maximum and an exponential share costs as much as both.
"""

import jax
from jax import numpy as jnp


def rounded(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Float32 x in another type, to the nearest; ties away from zero where it is bfloat16.

    To bfloat16 by arithmetic of integers: around a cast the compiler makes no vectors of what comes
    before it, where that is an exponential, and takes three times as long. Ties to even would take
    x twice. The NaN that arithmetic makes (0x7FC00000, of either sign) stays NaN; of others, those
    from 0x7FFF8000 on become zero and those below 0x7F808000 infinity.
    """
    if dtype != jnp.bfloat16:
        return x.astype(dtype)
    bits = (jax.lax.bitcast_convert_type(x, jnp.uint32) + 0x8000) >> 16
    return jax.lax.bitcast_convert_type(bits.astype(jnp.uint16), jnp.bfloat16)


def again(x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x, to be read from memory a second time, and `first`, computed from it by then."""
    return jax.lax.optimization_barrier((x, first))
