"""AdamW (Loshchilov and Hutter, 2019)."""

import jax
from jax import numpy as jnp

from jaxlm.config import OptimConfig
from jaxlm.optim.masks import decays
from jaxlm.optim.optimizer import Optimizer
from jaxlm.optim.paths import Path
from jaxlm.optim.rule import Now, Rule, Slots, whole


def adamw(cfg: OptimConfig) -> Optimizer:
    """Both moments of every parameter: 8 bytes each, 6 with the first in bfloat16."""
    return Optimizer(lambda path, ndim: adamw_rule(path, ndim, cfg), cfg.offload)


def adamw_rule(path: Path, ndim: int, cfg: OptimConfig) -> Rule:
    """Decay is left out where `masks` says so."""
    decay = cfg.weight_decay if decays(path) else 0.0

    def update(g: jax.Array, slots: Slots, p: jax.Array, now: Now) -> tuple[jax.Array, Slots]:
        mu = cfg.b1 * slots["mu"].astype(jnp.float32) + (1 - cfg.b1) * g
        nu = cfg.b2 * slots["nu"] + (1 - cfg.b2) * g * g
        steps = now.updates.astype(jnp.float32)
        mu_hat = mu / (1 - cfg.b1**steps)
        nu_hat = nu / (1 - cfg.b2**steps)
        update = -now.lr * (mu_hat / (jnp.sqrt(nu_hat) + cfg.eps) + decay * p)
        return update, {"mu": mu.astype(cfg.moment_dtype), "nu": nu}

    return Rule({"mu": whole(ndim, cfg.moment_dtype), "nu": whole(ndim)}, update)
