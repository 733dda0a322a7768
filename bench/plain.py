"""The step that the trainer is measured against: the same model and AdamW in plain JAX, on a page.

Parameters are a dict of arrays and a list of layers, also dicts; layers are unrolled, which is the
faster form on a CPU. Nothing is shared with `jaxlm`, so it is an oracle too.
"""

import functools
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

type Tree = Any


class Shape(NamedTuple):
    """What the arrays do not say."""

    vocab_size: int
    dtype: Any
    """Of products and activations; norms, softmax, loss and AdamW are float32."""
    bos_id: int
    pad_id: int
    theta: float = 500_000.0
    eps: float = 1e-5
    b1: float = 0.9
    b2: float = 0.95
    adam_eps: float = 1e-8
    decay: float = 0.1
    clip: float = 1.0


class State(NamedTuple):
    """Parameters, both moments of their gradients, and how often they were updated."""

    params: Tree
    mu: Tree
    nu: Tree
    updates: jax.Array


def start(params: Tree) -> State:
    """The state before the first update."""
    zeros = functools.partial(jax.tree.map, jnp.zeros_like, params)
    return State(params, zeros(), zeros(), jnp.zeros((), jnp.int32))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def step(shape: Shape, state: State, rows: jax.Array, lr: float) -> tuple[State, jax.Array]:
    """One update on ids [B, T + 1]; the mean loss before it."""
    mean, grads = jax.value_and_grad(loss)(state.params, shape, rows)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, shape.clip / norm), grads)
    b1, b2, count = shape.b1, shape.b2, state.updates + 1
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)

    def update(path: tuple, p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        decay = 0.0 if "norm" in path[-1].key or path[-1].key == "table" else shape.decay
        scaled = m / (1 - b1**count) / (jnp.sqrt(v / (1 - b2**count)) + shape.adam_eps)
        return p - lr * (scaled + decay * p)

    params = jax.tree_util.tree_map_with_path(update, state.params, mu, nu)
    return State(params, mu, nu, count), mean


def loss(params: Tree, shape: Shape, rows: jax.Array) -> jax.Array:
    """Mean cross entropy; a document's first token and padding are no targets."""
    rows = rows.astype(jnp.int32)
    tokens, targets = rows[:, :-1], rows[:, 1:]
    first, index = tokens == shape.bos_id, jnp.arange(tokens.shape[1])[None]
    document = jnp.cumsum(first, axis=1)
    position = index - jax.lax.cummax(jnp.where(first, index, 0), axis=1)
    mask = (document[:, :, None] == document[:, None]) & (index[:, :, None] >= index[:, None])
    half = params["layers"][0]["query"].shape[-1] // 2
    angle = position[..., None] * (shape.theta ** (-jnp.arange(half) / half))[None, None]
    turn = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]

    x = params["table"][tokens].astype(shape.dtype)
    for p in params["layers"]:
        x = x + attend(norm(x, p["attention_norm"], shape.eps), p, turn, mask)
        x = x + swiglu(norm(x, p["mlp_norm"], shape.eps), p)
    x = norm(x, params["norm"], shape.eps)
    logits = jnp.einsum("btd,dv->btv", x, params["head"].astype(x.dtype)).astype(jnp.float32)
    real = jnp.arange(logits.shape[-1]) < shape.vocab_size  # the head's columns are padded
    logits = jnp.where(real[None, None], logits, -1e30)
    at_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = jax.nn.logsumexp(logits, axis=-1) - at_target
    counts = (targets != shape.bos_id) & (targets != shape.pad_id)
    return (nll * counts).sum() / counts.sum()


def norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """RMSNorm."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * scale[None, None]).astype(x.dtype)


def attend(x: jax.Array, p: Tree, turn: tuple, mask: jax.Array) -> jax.Array:
    """Grouped-query attention with rotary positions, inside documents."""
    q = rotate(jnp.einsum("btd,dhk->bthk", x, p["query"].astype(x.dtype)), turn)
    k = rotate(jnp.einsum("btd,dnk->btnk", x, p["key"].astype(x.dtype)), turn)
    v = jnp.einsum("btd,dnk->btnk", x, p["value"].astype(x.dtype))
    q = (q * q.shape[-1] ** -0.5).reshape(*k.shape[:3], -1, k.shape[3])
    s = jnp.einsum("btngk,bsnk->bngts", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], s, -1e30), axis=-1).astype(x.dtype)
    o = jnp.einsum("bngts,bsnk->btngk", weights, v).reshape(*x.shape[:2], -1, v.shape[-1])
    return jnp.einsum("bthk,hkd->btd", o, p["out"].astype(x.dtype))


def rotate(x: jax.Array, turn: tuple) -> jax.Array:
    """The halves of each head turned by the position."""
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = turn
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def swiglu(x: jax.Array, p: Tree) -> jax.Array:
    """down(silu(gate) * up)."""
    gate = jnp.einsum("btd,df->btf", x, p["gate"].astype(x.dtype))
    up = jnp.einsum("btd,df->btf", x, p["up"].astype(x.dtype))
    return jnp.einsum("btf,fd->btd", jax.nn.silu(gate) * up, p["down"].astype(x.dtype))
