"""Optimizers and schedules. A new one is a function, and a line in its table."""

from collections.abc import Callable, Iterable

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
    """The optimizer of a config; `ConfigError` where it is not known, or its schedule is not."""
    _check("name", cfg.name, OPTIMIZERS)
    _check("schedule", cfg.schedule, SCHEDULES)
    return OPTIMIZERS[cfg.name](cfg)


def learning_rate(cfg: OptimConfig, peak: float, span: Span) -> Callable[[int], float]:
    """position after a step, in rows -> learning rate of that step."""
    schedule = SCHEDULES[cfg.schedule]
    return lambda position: peak * schedule(position, span, cfg.final_lr)


def _check(field: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ConfigError(f"config.optim.{field}={name!r}: must be one of {', '.join(known)}")
