"""Adafactor (Shazeer and Stern, 2018): the second moment of a matrix as a row and a column.

As Zhai et al. (2022) use it: the learning rate is not scaled by the parameters, and the memory of
the second moment is bounded (`b2`). The first moment is optional: none with `b1` = 0.
"""

import jax
from jax import numpy as jnp

from jaxlm.config import OptimConfig
from jaxlm.optim.masks import decays, input_dims
from jaxlm.optim.optimizer import Optimizer
from jaxlm.optim.paths import Path
from jaxlm.optim.rule import Now, Rule, Slot, Slots, whole

EPSILON = 1e-30
"""Added to squared gradients."""

POWER = 0.8
"""The second moment forgets by 1 - updates ** -POWER, until that is `b2`."""

LARGEST_RMS = 1.0
"""An update's root mean square, before the learning rate, is scaled down to this."""


def adafactor(cfg: OptimConfig) -> Optimizer:
    """A first moment, 4 bytes a parameter, 2 in bfloat16, 0 with `b1` = 0; little beside it."""
    return Optimizer(lambda path, ndim: _rule(path, ndim, cfg), cfg.offload)


def _rule(path: Path, ndim: int, cfg: OptimConfig) -> Rule:
    split, decay = input_dims(path), cfg.weight_decay if decays(path) else 0.0
    slots = {"mu": whole(ndim, cfg.moment_dtype)} if cfg.b1 else {}
    if split:
        slots |= {"row": Slot(tuple(range(split))), "column": Slot(tuple(range(split, ndim)))}
    else:
        slots |= {"nu": whole(ndim)}

    def update(g: jax.Array, slots: Slots, p: jax.Array, now: Now) -> tuple[jax.Array, Slots]:
        steps = now.updates.astype(jnp.float32)
        b2 = jnp.minimum(1 - steps**-POWER, cfg.b2)
        scaled, after = _scale(g, slots, b2, split)
        scaled = scaled / jnp.maximum(1.0, jnp.sqrt(jnp.mean(scaled * scaled)) / LARGEST_RMS)
        if cfg.b1:
            mu = cfg.b1 * slots["mu"].astype(jnp.float32) + (1 - cfg.b1) * scaled
            after["mu"] = mu.astype(cfg.moment_dtype)
            scaled = mu / (1 - cfg.b1**steps)
        return -now.lr * (scaled + decay * p), after

    return Rule(slots, update)


def _scale(g: jax.Array, slots: Slots, b2: jax.Array, split: int) -> tuple[jax.Array, Slots]:
    """The gradient over the root of its second moment, and the new second moment."""
    square = g * g + EPSILON
    if not split:
        nu = b2 * slots["nu"] + (1 - b2) * square
        return g * jax.lax.rsqrt(nu), {"nu": nu}
    inputs, outputs = tuple(range(split)), tuple(range(split, g.ndim))
    row = b2 * slots["row"] + (1 - b2) * square.mean(outputs)
    column = b2 * slots["column"] + (1 - b2) * square.mean(inputs)
    by_row = jnp.expand_dims(jax.lax.rsqrt(row / row.mean()), outputs)
    by_column = jnp.expand_dims(jax.lax.rsqrt(column), inputs)
    return g * by_row * by_column, {"row": row, "column": column}
