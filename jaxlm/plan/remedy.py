"""Which changes would make a config fit that does not: estimates, scaled to what was compiled.

Batch and mesh stay as they are; `jaxlm plan --search` looks at other meshes, and compiles.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from jaxlm.config import Config
from jaxlm.models.remat import REMAT
from jaxlm.plan import estimate

MARGIN = 0.95
"""Of a device's memory: an estimate below it is taken to fit."""

STRONGER = dict(pairwise(REMAT))
"""Remat policy -> the next that saves less."""

BLOCKS = 8
"""Of the vocabulary in the loss: more gather the head more often."""


class Remedy(NamedTuple):
    """A change, and what a device would then need."""

    overrides: tuple[str, ...]
    """For the command line."""
    bytes: float
    fits: bool


def remedies(
    cfg: Config, mesh_shape: dict[str, int], needed: float, capacity: float
) -> list[Remedy]:
    """Each change on its own, and then all of them in turn until it fits, as far as they go."""
    carried = estimate.state(cfg)
    scale = needed / estimate.memory(cfg, mesh_shape, carried)

    def remedy(changed: Config, *overrides: str) -> Remedy:
        size = estimate.memory(changed, mesh_shape, carried) * scale
        return Remedy(overrides, size, size <= MARGIN * capacity)

    alone = [after for change in CHANGES if (after := change(cfg, mesh_shape))]
    found = [remedy(changed, override) for override, changed in alone]
    if any(r.fits for r in found):
        return found
    overrides: dict[str, str] = {}
    for change in CHANGES:
        while after := change(cfg, mesh_shape):
            override, cfg = after
            overrides[override.partition("=")[0]] = override
            together = remedy(cfg, *overrides.values())
            if together.fits:
                return [*found, together]
    return [*found, remedy(cfg, *overrides.values())]


def lines(found: list[Remedy]) -> Iterator[str]:
    """What would fit, as far as estimates can tell."""
    yield "changes and what a device would then need, by estimate, GiB:"
    for r in sorted(found, key=lambda r: not r.fits):
        flags = " ".join(f"--config.{o}" for o in r.overrides)
        yield f"  {r.bytes / 2**30:>9.2f}  {'fits' if r.fits else 'too much':<9} {flags}"


type Change = Callable[[Config, dict[str, int]], tuple[str, Config] | None]
"""(config, mesh) -> (override, config with it); None where there is nothing left to change."""


def _fewer_rows(cfg: Config, mesh_shape: dict[str, int]) -> tuple[str, Config] | None:
    share = cfg.train.batch_size // (mesh_shape["data"] * mesh_shape["fsdp"])
    rows = cfg.train.rows_per_device or share
    fewer = max((d for d in range(1, rows // 2 + 1) if share % d == 0), default=None)
    if fewer is None:
        return None
    changed = replace(cfg, train=replace(cfg.train, rows_per_device=fewer))
    return f"train.rows_per_device={fewer}", changed


def _stronger_remat(cfg: Config, mesh_shape: dict[str, int]) -> tuple[str, Config] | None:
    policy = STRONGER.get(cfg.model.remat)
    if policy is None:
        return None
    return f"model.remat={policy}", replace(cfg, model=replace(cfg.model, remat=policy))


def _blocked_loss(cfg: Config, mesh_shape: dict[str, int]) -> tuple[str, Config] | None:
    uneven = cfg.model.padded_vocab % (BLOCKS * mesh_shape["tensor"])
    if cfg.loss.vocab_blocks > 1 or uneven:
        return None
    return f"loss.vocab_blocks={BLOCKS}", replace(cfg, loss=replace(cfg.loss, vocab_blocks=BLOCKS))


def _moments_on_host(cfg: Config, mesh_shape: dict[str, int]) -> tuple[str, Config] | None:
    if cfg.optim.offload:
        return None
    return "optim.offload=true", replace(cfg, optim=replace(cfg.optim, offload=True))


def _saved_on_host(cfg: Config, mesh_shape: dict[str, int]) -> tuple[str, Config] | None:
    if cfg.model.remat == "none" or cfg.model.offload_activations:
        return None
    changed = replace(cfg, model=replace(cfg.model, offload_activations=True))
    return "model.offload_activations=true", changed


CHANGES: tuple[Change, ...] = (
    _fewer_rows,
    _stronger_remat,
    _blocked_loss,
    _moments_on_host,
    _saved_on_host,
)
"""The cheapest first."""
