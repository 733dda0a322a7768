"""One update and one evaluation, as pure functions of what they are given.

Shapes: B rows of a batch, b rows of a microbatch, T targets a row; a row has T + 1 token ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp
from jax import stages
from jax.sharding import Mesh
from jax.typing import ArrayLike

from jaxlm import compiler
from jaxlm import loss as loss_lib
from jaxlm import mesh as mesh_lib
from jaxlm.accumulate import accumulate
from jaxlm.config import LossConfig
from jaxlm.loss import Sums
from jaxlm.models.block import Dropout
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.optim.optimizer import Optimizer
from jaxlm.state import TrainState


class Inputs(NamedTuple):
    """What a row of token ids means; each [B, T]."""

    tokens: jax.Array
    targets: jax.Array
    weights: jax.Array
    """0 where the target is a document's BOS or padding, else 1."""
    segments: jax.Array
    """Number of the document inside the row."""
    positions: jax.Array
    """Tokens since the document's start, or since the row's start if it began before."""


Scalar = jax.Array | np.float32
"""A number that the host hands to the step."""


class Controls(NamedTuple):
    """What the host decides for one step."""

    lr: Scalar
    """float32."""
    dropout: Scalar
    """float32, the rate."""
    positions: ArrayLike
    """uint32[B, 2], of each row."""
    next_position: ArrayLike
    """uint32[2], after the batch."""
    max_loss: Scalar
    """float32: a batch with a loss above it is not learned from."""
    max_grad_norm: Scalar
    """float32: likewise."""
    flags: jax.Array
    """int32 [devices, F], what each process asks for."""


class Metrics(NamedTuple):
    """What a step reports; replicated on all devices."""

    loss: jax.Array
    """Mean objective, z-loss included."""
    nll: jax.Array
    """Mean negative log-likelihood in nats a target."""
    grad_norm: jax.Array
    """Global norm before clipping."""
    weight: jax.Array
    """Targets that counted."""
    applied: jax.Array
    """bool: whether the batch was learned from; if not, only step and position moved on."""
    flags: jax.Array
    """int32[F]: the maximum over all processes."""


@dataclass(frozen=True)
class StepDef:
    """All that is fixed when a step is compiled."""

    model: ModelDef
    optimizer: Optimizer
    loss: LossConfig
    clip_norm: float
    seed: int
    dropout: bool
    microbatches: int
    bos_id: int
    pad_id: int


def read_rows(rows_BT1: jax.Array, bos_id: int, pad_id: int) -> Inputs:
    """Derives everything from token ids [B, T + 1]."""
    rows_BT1 = rows_BT1.astype(jnp.int32)
    tokens_BT, targets_BT = rows_BT1[:, :-1], rows_BT1[:, 1:]
    start_BT = tokens_BT == bos_id
    index_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    since_BT = jax.lax.cummax(jnp.where(start_BT, index_BT, 0), axis=1)
    counts_BT = (targets_BT != bos_id) & (targets_BT != pad_id)
    return Inputs(
        tokens_BT,
        targets_BT,
        counts_BT.astype(jnp.float32),
        jnp.cumsum(start_BT.astype(jnp.int32), axis=1),
        index_BT - since_BT,
    )


def row_keys(seed: int, positions: ArrayLike) -> jax.Array:
    """A random key for each row from its position (uint32[B, 2]), whatever the batch or mesh."""

    def key(halves: jax.Array) -> jax.Array:
        high, low = halves
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), high), low)

    return jax.vmap(key)(jnp.asarray(positions))


def draws(step: StepDef, positions: ArrayLike, rate: ArrayLike) -> Dropout | None:
    """What dropout draws from in a batch at these positions (uint32[B, 2]); None if it is off."""
    return Dropout(row_keys(step.seed, positions), jnp.asarray(rate)) if step.dropout else None


def objective(
    params: Params, step: StepDef, rows_BT1: jax.Array, dropout: Dropout | None
) -> tuple[jax.Array, Sums]:
    """The undivided loss of some rows, and its sums."""
    inputs = read_rows(rows_BT1, step.bos_id, step.pad_id)
    hidden_BTD = step.model.hidden(
        params, inputs.tokens, inputs.segments, inputs.positions, dropout
    )
    tokens = loss_lib.token_loss(
        hidden_BTD,
        *step.model.head(params),
        inputs.targets,
        step.model.cfg.vocab_size,
        step.loss.vocab_blocks,
    )
    sums = loss_lib.sums(tokens, inputs.weights, step.loss)
    return sums.loss, sums


def gradients(
    params: Params, step: StepDef, rows_BT1: jax.Array, dropout: Dropout | None
) -> tuple[Params, Sums]:
    """Undivided gradients and sums of a batch, accumulated over its microbatches in float32."""
    keys_B, rate = (None, None) if dropout is None else dropout

    def differentiate(shared: tuple, part: tuple) -> tuple[Params, Sums]:
        (params, rate), (rows_bT1, keys_b) = shared, part
        own = None if rate is None else Dropout(keys_b, rate)
        return jax.grad(objective, has_aux=True)(params, step, rows_bT1, own)

    return accumulate(differentiate, (params, rate), (rows_BT1, keys_B), step.microbatches)


def train_step(
    step: StepDef, state: TrainState, rows_BT1: jax.Array, controls: Controls
) -> tuple[TrainState, Metrics]:
    """One update. The mean is over the targets of the whole batch, divided once."""
    dropout = draws(step, controls.positions, controls.dropout)
    grads, sums = gradients(state.params, step, rows_BT1, dropout)
    weight = jnp.maximum(sums.weight, 1.0)
    grads = jax.tree.map(lambda g: g / weight, grads)
    norm, loss = optax.tree.norm(grads), sums.loss / weight
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    applied = finite & (loss <= controls.max_loss) & (norm <= controls.max_grad_norm)
    clip = jnp.minimum(1.0, step.clip_norm / jnp.maximum(norm, 1e-30))
    grads = jax.tree.map(lambda g: g * clip, grads)
    updates, opt_state = step.optimizer.update(
        grads, state.opt_state, state.params, lr=controls.lr, applied=applied
    )
    params = jax.tree.map(jnp.add, state.params, updates)
    flags = controls.flags.max(axis=0)
    position = jnp.asarray(controls.next_position)
    metrics = Metrics(loss, sums.nll / weight, norm, sums.weight, applied, flags)
    return TrainState(state.step + 1, position, params, opt_state), metrics


def compile_train_step(
    step: StepDef, mesh: Mesh, where: TrainState, deterministic: Path | None = None
) -> stages.Wrapped:
    """`train_step` compiled for a mesh: (state, rows [B, T + 1], controls) -> (state, Metrics).

    The state given is donated. `deterministic`: as in `compiler.options`.
    """
    return jax.jit(
        lambda state, rows_BT1, controls: train_step(step, state, rows_BT1, controls),
        out_shardings=(where, mesh_lib.replicated(mesh)),
        donate_argnums=0,
        compiler_options=compiler.options(mesh.devices.flat[0], deterministic),
    )


class EvalSums(NamedTuple):
    """Sums over the counted targets of some held-out rows."""

    nll: jax.Array
    weight: jax.Array
    text_bytes: jax.Array
    """UTF-8 bytes that the targets stand for."""


def eval_step(
    step: StepDef, params: Params, rows_BT1: jax.Array, piece_bytes_V: jax.Array
) -> EvalSums:
    """Sums of some rows, without dropout or z-loss."""
    inputs = read_rows(rows_BT1, step.bos_id, step.pad_id)
    hidden_BTD = step.model.hidden(params, inputs.tokens, inputs.segments, inputs.positions)
    tokens = loss_lib.token_loss(
        hidden_BTD,
        *step.model.head(params),
        inputs.targets,
        step.model.cfg.vocab_size,
        step.loss.vocab_blocks,
    )
    text_bytes = (piece_bytes_V[inputs.targets] * inputs.weights).sum()
    return EvalSums((tokens.nll_BT * inputs.weights).sum(), inputs.weights.sum(), text_bytes)


def compile_eval_step(
    step: StepDef, mesh: Mesh
) -> Callable[[Params, jax.Array, jax.Array], EvalSums]:
    """`eval_step` compiled for a mesh."""
    return jax.jit(
        lambda params, rows_BT1, piece_bytes_V: eval_step(step, params, rows_BT1, piece_bytes_V),
        out_shardings=mesh_lib.replicated(mesh),
    )
