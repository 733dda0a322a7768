"""AdamW (Loshchilov and Hutter, 2019) as a function of one leaf, behind Optax's interface.

Optax's own `adamw` updates whole trees a moment at a time; a function of a leaf lets its state be
streamed from host memory, and XLA fuse the update into one pass.
"""

from typing import NamedTuple

import jax
import optax
from jax import numpy as jnp

from jaxlm.config import OptimConfig
from jaxlm.optim.masks import decays


class AdamWState(NamedTuple):
    """Updates so far, and both moments in the shape of the parameters."""

    updates: jax.Array
    mu: optax.Params
    nu: optax.Params


class Leaf(NamedTuple):
    """What the update of one leaf gives."""

    update: jax.Array
    mu: jax.Array
    nu: jax.Array


def adamw_leaf(
    g: jax.Array,
    mu: jax.Array,
    nu: jax.Array,
    p: jax.Array,
    *,
    count: jax.Array,
    lr: jax.Array,
    decay: float,
    cfg: OptimConfig,
) -> Leaf:
    """One parameter's update; `count` includes this update, `decay` is 0 where masked."""
    mu = cfg.b1 * mu + (1 - cfg.b1) * g
    nu = cfg.b2 * nu + (1 - cfg.b2) * g * g
    steps = count.astype(jnp.float32)
    mu_hat = mu / (1 - cfg.b1**steps)
    nu_hat = nu / (1 - cfg.b2**steps)
    return Leaf(-lr * (mu_hat / (jnp.sqrt(nu_hat) + cfg.eps) + decay * p), mu, nu)


def adamw(cfg: OptimConfig) -> optax.GradientTransformationExtraArgs:
    """AdamW whose `update` takes the learning rate as the extra argument `lr`."""

    def init(params: optax.Params) -> AdamWState:
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return AdamWState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        *,
        lr: jax.Array,
    ) -> tuple[optax.Updates, optax.OptState]:
        assert isinstance(state, AdamWState)
        count = state.updates + 1

        def leaf(path: tuple, g: jax.Array, mu: jax.Array, nu: jax.Array, p: jax.Array) -> Leaf:
            decay = cfg.weight_decay if decays(path) else 0.0
            return adamw_leaf(g, mu, nu, p, count=count, lr=lr, decay=decay, cfg=cfg)

        leaves = jax.tree_util.tree_map_with_path(leaf, updates, state.mu, state.nu, params)
        pick = lambda i: jax.tree.map(lambda x: x[i], leaves, is_leaf=_is_leaf)  # noqa: E731
        return pick(0), AdamWState(count, pick(1), pick(2))

    # Optax's own type of `update` has no room for named extra arguments.
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def _is_leaf(x: object) -> bool:
    return isinstance(x, Leaf)
