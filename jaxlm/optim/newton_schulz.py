"""Matrices made nearly orthogonal by five steps of a quintic Newton-Schulz iteration.

With the coefficients of Jordan et al. (2024): steepest where singular values are small, they leave
each of them between 0.7 and 1.2, not at 1.
"""

import jax
from jax import numpy as jnp

from jaxlm.mesh import spread

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPSILON = 1e-8
DTYPE = jnp.bfloat16


def orthogonal(x_Lmn: jax.Array) -> jax.Array:
    """U V^T of each matrix U S V^T, nearly; float32.

    Each device of the fsdp axis takes its share of the matrices, whole ones: products of split ones
    would move every matrix at every step.
    """
    layers, tall = x_Lmn.shape[0], x_Lmn.shape[1] > x_Lmn.shape[2]
    x_Lmn = x_Lmn / (jnp.linalg.norm(x_Lmn, axis=(1, 2), keepdims=True) + EPSILON)
    x_Lmn = spread(x_Lmn.astype(DTYPE))
    x_Lmn = x_Lmn.swapaxes(1, 2) if tall else x_Lmn
    x_Lmn = jax.lax.fori_loop(0, STEPS, lambda _, x_Lmn: _step(x_Lmn), x_Lmn)
    x_Lmn = x_Lmn.swapaxes(1, 2) if tall else x_Lmn
    return spread(x_Lmn)[:layers].astype(jnp.float32)


def _step(x_Lmn: jax.Array) -> jax.Array:
    a, b, c = COEFFICIENTS
    s_Lmm = x_Lmn @ x_Lmn.swapaxes(1, 2)
    return a * x_Lmn + (b * s_Lmm + c * (s_Lmm @ s_Lmm)) @ x_Lmn
