"""Muon (Jordan et al., 2024) for the matrices of the layers, AdamW for all else.

The momentum of a matrix is made nearly orthogonal by five Newton-Schulz steps, and scaled so that
the root mean square of an update is AdamW's, about 0.2 (Liu et al., 2025): one learning rate and
one weight decay serve both.
"""

import math

import jax
from jax import numpy as jnp

from jaxlm.config import OptimConfig
from jaxlm.optim.adamw import adamw_rule
from jaxlm.optim.masks import hidden_matrix, input_dims
from jaxlm.optim.newton_schulz import orthogonal
from jaxlm.optim.optimizer import Optimizer
from jaxlm.optim.paths import Path
from jaxlm.optim.rule import Now, Rule, Slots, whole

RMS = 0.2
"""Of an update of AdamW's, about."""


def muon(cfg: OptimConfig) -> Optimizer:
    """Momentum `b1` of matrices, 4 bytes each, 2 in bfloat16; the rest as AdamW."""

    def rule(path: Path, ndim: int) -> Rule:
        if hidden_matrix(path):
            return _rule(input_dims(path), ndim, cfg)
        return adamw_rule(path, ndim, cfg)

    return Optimizer(rule, cfg.offload)


def _rule(split: int, ndim: int, cfg: OptimConfig) -> Rule:
    def update(g: jax.Array, slots: Slots, p: jax.Array, now: Now) -> tuple[jax.Array, Slots]:
        mu = cfg.b1 * slots["mu"].astype(jnp.float32) + (1 - cfg.b1) * g
        steps = now.updates.astype(jnp.float32)
        # Nesterov's: the momentum as it will be at the next update, as in NAdam (Dozat, 2016).
        ahead = cfg.b1 * mu / (1 - cfg.b1 ** (steps + 1)) + (1 - cfg.b1) * g / (1 - cfg.b1**steps)
        fan_in, fan_out = math.prod(g.shape[1 : 1 + split]), math.prod(g.shape[1 + split :])
        x_Lmn = ahead.reshape(g.shape[0], fan_in, fan_out)
        o_Lmn = orthogonal(x_Lmn) * (RMS * math.sqrt(max(fan_in, fan_out)))
        update = -now.lr * (o_Lmn.reshape(g.shape) + cfg.weight_decay * p)
        return update, {"mu": mu.astype(cfg.moment_dtype)}

    # All layers at once, because each device takes some of them whole.
    return Rule({"mu": whole(ndim, cfg.moment_dtype)}, update, layerwise=False)
