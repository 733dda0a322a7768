"""Text from a model: one compiled program fills the cache from the prompts and runs the loop.

Shapes: B prompts, P tokens of the longest, N new tokens at most, V padded vocabulary.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import numpy as jnp

from jaxlm.errors import UserError
from jaxlm.mesh import batch_ways
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.ops.dense import dense


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn."""

    max_tokens: int = 128
    """New tokens a prompt, at most."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 takes all."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability (nucleus sampling)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= 1 << 20:
            raise UserError(f"--max-tokens={self.max_tokens}: must be in [1, {1 << 20}]")
        if self.temperature != 0 and not 1e-3 <= self.temperature <= 1e3:
            raise UserError(f"--temperature={self.temperature}: must be 0 or in [0.001, 1000]")
        if self.top_k < 0:
            raise UserError(f"--top-k={self.top_k}: must not be below 0")
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p={self.top_p}: must be above 0 and at most 1")
        if not 0 <= self.seed < 2**32:  # more bits would be cut off
            raise UserError(f"--seed={self.seed}: must be in [0, 2**32)")


def generate(
    model: ModelDef,
    params: Params,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    stop_ids: Sequence[int],
) -> list[list[int]]:
    """New token ids for each prompt, up to and without the first stop token.

    A row does not depend on the others, nor on how many there are. At least one stop token.
    """
    if not prompts or not all(prompts):
        raise UserError("a prompt is empty; begin it with the boundary token")
    ways = batch_ways()
    rows = -(-len(prompts) // ways) * ways  # those beyond the prompts are done from the start
    lengths_B = np.ones(rows, np.int32)
    prompts_BP = np.zeros((rows, max(map(len, prompts))), np.int32)
    for i, prompt in enumerate(prompts):
        lengths_B[i] = len(prompt)
        prompts_BP[i, : len(prompt)] = prompt
    done_B = np.arange(rows) >= len(prompts)
    new_BN = np.asarray(
        _generate(model, params, prompts_BP, lengths_B, done_B, sampling, tuple(stop_ids))
    )
    texts = []
    for row in new_BN[: len(prompts)]:
        stops = np.flatnonzero(np.isin(row, stop_ids))
        texts.append(row[: stops[0] if len(stops) else len(row)].tolist())
    return texts


@functools.partial(jax.jit, static_argnames=("model", "sampling", "stop_ids"))
def _generate(
    model: ModelDef,
    params: Params,
    prompts_BP: jax.Array,
    lengths_B: jax.Array,
    done_B: jax.Array,
    sampling: Sampling,
    stop_ids: tuple[int, ...],
) -> jax.Array:
    """[B, N]; after a row's stop token come more of it."""
    rows, longest = prompts_BP.shape
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(
        jax.random.key(sampling.seed), jnp.arange(rows)
    )
    # Padding after a prompt leaves keys that no query sees before they are overwritten.
    positions_BP = jnp.broadcast_to(jnp.arange(longest), (rows, longest))
    caches = model.empty_cache(rows, longest + sampling.max_tokens)
    hidden_BPD, caches = model.decode(params, prompts_BP, positions_BP, caches)
    last_B1D = jnp.take_along_axis(hidden_BPD, (lengths_B - 1)[:, None, None], axis=1)
    stops_S = jnp.array(stop_ids, jnp.int32)

    def running(carry: tuple) -> jax.Array:
        index, _, _, done_B, _ = carry
        return (index < sampling.max_tokens) & ~done_B.all()

    def body(carry: tuple) -> tuple:
        index, last_B1D, caches, done_B, new_BN = carry
        step_keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, index)
        token_B = choose(next_logits(model, params, last_B1D), step_keys_B, sampling)
        done_B = done_B | (token_B[:, None] == stops_S[None]).any(-1)
        new_BN = jax.lax.dynamic_update_slice(new_BN, token_B[:, None], (0, index))
        positions_B1 = (lengths_B + index)[:, None]
        last_B1D, caches = model.decode(params, token_B[:, None], positions_B1, caches)
        return index + 1, last_B1D, caches, done_B, new_BN

    new_BN = jnp.full((rows, sampling.max_tokens), stop_ids[0], jnp.int32)
    return jax.lax.while_loop(running, body, (0, last_B1D, caches, done_B, new_BN))[-1]


def next_logits(model: ModelDef, params: Params, hidden_B1D: jax.Array) -> jax.Array:
    """Float32 [B, V]; rows of the padding are -inf."""
    logits_BV = dense(hidden_B1D[:, 0], *model.head(params)).astype(jnp.float32)
    real_V = jnp.arange(logits_BV.shape[1]) < model.cfg.vocab_size
    return jnp.where(real_V[None], logits_BV, -jnp.inf)


def choose(logits_BV: jax.Array, keys_B: jax.Array, sampling: Sampling) -> jax.Array:
    """int32[B]: a token of each row."""
    if sampling.temperature == 0:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    logits_BV = logits_BV / sampling.temperature
    if sampling.top_k:
        k = min(sampling.top_k, logits_BV.shape[1])
        least_B1 = jax.lax.top_k(logits_BV, k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < least_B1, -jnp.inf, logits_BV)
    if sampling.top_p < 1:
        sorted_BV = jnp.sort(logits_BV, axis=-1, descending=True)
        p_BV = jax.nn.softmax(sorted_BV, axis=-1)
        # The likeliest stays, also when top_p is nothing in float32.
        kept_BV = (jnp.cumsum(p_BV, axis=-1) - p_BV < sampling.top_p).at[:, 0].set(True)
        least_B1 = jnp.where(kept_BV, sorted_BV, jnp.inf).min(-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least_B1, -jnp.inf, logits_BV)
    return jax.vmap(jax.random.categorical)(keys_B, logits_BV).astype(jnp.int32)
