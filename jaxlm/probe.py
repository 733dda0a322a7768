"""What a batch does inside a model: loss, gradient norms and activations, layer by layer."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.sharding import Mesh
from jax.typing import ArrayLike

from jaxlm import compiler
from jaxlm import mesh as mesh_lib
from jaxlm.accumulate import accumulate
from jaxlm.models.block import Dropout
from jaxlm.models.transformer import Params
from jaxlm.optim.masks import stacked
from jaxlm.optim.paths import flat
from jaxlm.step import StepDef, draws, gradients, read_rows


class Norms(NamedTuple):
    """Of one batch under some parameters; float32, L layers."""

    loss: jax.Array
    residual_rms: jax.Array
    """[L]: of what each layer leaves on its residual stream, over all tokens."""
    gradients: dict[str, jax.Array]
    """Norm before clipping by the parameter's name: [L] of those of the layers, else one number."""


def norms(
    step: StepDef, params: Params, rows_BT1: jax.Array, positions: ArrayLike, rate: ArrayLike
) -> Norms:
    """With the dropout that a step at these positions (uint32[B, 2]) and this rate would draw."""
    dropout = draws(step, positions, rate)
    grads, sums = gradients(params, step, rows_BT1, dropout)
    weight = jnp.maximum(sums.weight, 1.0)
    keys_B, rate_of = (None, None) if dropout is None else dropout

    def squares(shared: tuple, part: tuple) -> jax.Array:
        (params, rate), (rows_bT1, keys_b) = shared, part
        own = None if rate is None else Dropout(keys_b, rate)
        inputs = read_rows(rows_bT1, step.bos_id, step.pad_id)
        return step.model.residual_squares(
            params, inputs.tokens, inputs.segments, inputs.positions, own
        )

    total_L = accumulate(squares, (params, rate_of), (rows_BT1, keys_B), step.microbatches)
    tokens = rows_BT1.shape[0] * (rows_BT1.shape[1] - 1)

    def norm(path: tuple[str, ...], grad: jax.Array) -> jax.Array:
        axes = tuple(range(int(stacked(path)), grad.ndim))
        return jnp.sqrt(jnp.square(grad / weight).sum(axes))

    return Norms(
        sums.loss / weight,
        jnp.sqrt(total_L / tokens),
        {"/".join(path): norm(path, grad) for path, grad in flat(grads).items()},
    )


def compile_norms(
    step: StepDef, mesh: Mesh
) -> Callable[[Params, jax.Array, ArrayLike, ArrayLike], Norms]:
    """`norms` compiled for a mesh: (params, rows, positions, rate) -> Norms, replicated."""
    return jax.jit(
        lambda params, rows_BT1, positions, rate: norms(step, params, rows_BT1, positions, rate),
        out_shardings=mesh_lib.replicated(mesh),
        compiler_options=compiler.options(mesh.devices.flat[0]),
    )
