"""Which changes would make a config fit that does not: estimates, scaled to what was compiled.

Batch and mesh stay as they are; `jaxlm plan --search` looks at other meshes, and compiles.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from jaxlm.config import Config
from jaxlm.plan import estimate

MARGIN = 0.95
"""Of a device's memory: an estimate below it is taken to fit."""

STRONGER = {"none": "dots", "dots": "attention", "attention": "full", "full": "full"}
"""Remat policy -> the next that saves less."""

BLOCKS = 8
"""Of the vocabulary in the loss: more gather the head more often."""


class Remedy(NamedTuple):
    """A change, and what a device would then need."""

    overrides: tuple[str, ...]
    """For the command line."""
    bytes: float
    fits: bool


class _Layout(NamedTuple):
    cfg: Config
    microbatches: int


def remedies(
    cfg: Config, mesh_shape: dict[str, int], microbatches: int, needed: float, capacity: float
) -> list[Remedy]:
    """Each change on its own, and then all of them in turn until it fits, as far as they go."""
    carried = estimate.state(cfg)
    scale = needed / estimate.memory(cfg, mesh_shape, microbatches, carried)

    def remedy(layout: _Layout, overrides: tuple[str, ...]) -> Remedy:
        changed = estimate.memory(layout.cfg, mesh_shape, layout.microbatches, carried) * scale
        return Remedy(overrides, changed, changed <= MARGIN * capacity)

    start = _Layout(cfg, microbatches)
    found = [
        remedy(layout, (override,))
        for change in CHANGES
        for override, layout in change(start, mesh_shape)
    ]
    if any(r.fits for r in found):
        return found
    layout, overrides = start, {}
    for change in CHANGES:
        while (after := next(change(layout, mesh_shape), None)) is not None:
            override, layout = after
            overrides[override.partition("=")[0]] = override
            both = remedy(layout, tuple(overrides.values()))
            if both.fits:
                return [*found, both]
    return [*found, remedy(layout, tuple(overrides.values()))]


def lines(found: list[Remedy]) -> Iterator[str]:
    """What would fit, as far as estimates can tell."""
    yield "changes and what a device would then need, by estimate, GiB:"
    for r in sorted(found, key=lambda r: not r.fits):
        flags = " ".join(f"--config.{o}" for o in r.overrides)
        yield f"  {r.bytes / 2**30:>9.2f}  {'fits' if r.fits else 'too much':<9} {flags}"


type Change = Callable[[_Layout, dict[str, int]], Iterator[tuple[str, _Layout]]]


def _fewer_rows(at: _Layout, mesh_shape: dict[str, int]) -> Iterator[tuple[str, _Layout]]:
    share = at.cfg.train.batch_size // (mesh_shape["data"] * mesh_shape["fsdp"])
    rows = share // at.microbatches
    fewer = max((d for d in range(1, rows // 2 + 1) if share % d == 0), default=None)
    if fewer is not None:
        cfg = replace(at.cfg, train=replace(at.cfg.train, rows_per_device=fewer))
        yield f"train.rows_per_device={fewer}", _Layout(cfg, share // fewer)


def _stronger_remat(at: _Layout, mesh_shape: dict[str, int]) -> Iterator[tuple[str, _Layout]]:
    policy = STRONGER[at.cfg.model.remat]
    if policy != at.cfg.model.remat:
        cfg = replace(at.cfg, model=replace(at.cfg.model, remat=policy))
        yield f"model.remat={policy}", at._replace(cfg=cfg)


def _blocked_loss(at: _Layout, mesh_shape: dict[str, int]) -> Iterator[tuple[str, _Layout]]:
    if (
        at.cfg.loss.vocab_blocks == 1
        and at.cfg.model.padded_vocab % (BLOCKS * mesh_shape["tensor"]) == 0
    ):
        cfg = replace(at.cfg, loss=replace(at.cfg.loss, vocab_blocks=BLOCKS))
        yield f"loss.vocab_blocks={BLOCKS}", at._replace(cfg=cfg)


def _moments_on_host(at: _Layout, mesh_shape: dict[str, int]) -> Iterator[tuple[str, _Layout]]:
    if not at.cfg.optim.offload:
        cfg = replace(at.cfg, optim=replace(at.cfg.optim, offload=True))
        yield "optim.offload=true", at._replace(cfg=cfg)


def _saved_on_host(at: _Layout, mesh_shape: dict[str, int]) -> Iterator[tuple[str, _Layout]]:
    if at.cfg.model.remat != "none" and not at.cfg.model.offload_activations:
        cfg = replace(at.cfg, model=replace(at.cfg.model, offload_activations=True))
        yield "model.offload_activations=true", at._replace(cfg=cfg)


CHANGES: tuple[Change, ...] = (
    _fewer_rows,
    _stronger_remat,
    _blocked_loss,
    _moments_on_host,
    _saved_on_host,
)
"""The cheapest first."""
