"""Optimizers and schedules. A new one is a function, and a line in its table."""

from collections.abc import Callable

from jaxlm.config import OptimConfig
from jaxlm.optim.adafactor import adafactor
from jaxlm.optim.adamw import adamw
from jaxlm.optim.muon import muon
from jaxlm.optim.optimizer import Optimizer
from jaxlm.optim.schedules import SCHEDULES, Span
from jaxlm.schema import ConfigError

OPTIMIZERS: dict[str, Callable[[OptimConfig], Optimizer]] = {
    "adamw": adamw,
    "adafactor": adafactor,
    "muon": muon,
}


def build(cfg: OptimConfig) -> Optimizer:
    """The optimizer of a config."""
    if cfg.name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise ConfigError(f"config.optim.name={cfg.name!r}: must be one of {known}")
    return OPTIMIZERS[cfg.name](cfg)


def learning_rate(cfg: OptimConfig, peak: float, span: Span) -> Callable[[int], float]:
    """position after a step, in rows -> learning rate of that step."""
    if cfg.schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise ConfigError(f"config.optim.schedule={cfg.schedule!r}: must be one of {known}")
    schedule = SCHEDULES[cfg.schedule]
    return lambda position: peak * schedule(position, span, cfg.final_lr)
