"""What a recipe says about proportions: shares of tokens by type, stages, budget, repetition."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from data_tools import thresholds
from jaxlm.data import manifest
from jaxlm.schema import ConfigError

GENERAL_CHINESE = (
    ("web", 40.0),
    ("book", 25.0),
    ("encyclopedia", 15.0),
    ("code", 10.0),
    ("dialogue", 10.0),
)
"""Proportions for a general Chinese model, in tokens."""

LEAST_STAGE = 1e-4
"""Share of the run: runs deal rows in blocks, and less would be lost in many."""


@dataclass(frozen=True)
class MixtureStageConfig:
    """A stretch of training with one mixture."""

    weights: tuple[tuple[str, float], ...] = ()
    """(type, share of the tokens) pairs, one for each type of the sources; shares are relative, 0
    leaves a type out."""
    until: float = 1.0
    """Where the stage ends, as a share of the run; the last stage ends at 1."""

    def __post_init__(self) -> None:
        for name, weight in self.weights:
            thresholds.weight(f"weights: {name!r}", weight)
        if not any(weight for _, weight in self.weights):
            raise ValueError(f"weights={self.weights}: one must be above 0")


@dataclass(frozen=True)
class MixtureConfig:
    """Proportions that a corpus is made for; a run takes them unless it says its own."""

    stages: tuple[MixtureStageConfig, ...] = ()
    """In order; empty takes each source by its size."""
    tokens: float = 0.0
    """Tokens that will be trained on: proportions and repetition are planned for so many. 0: they
    are planned when a run starts, for its own length."""
    max_epochs: float = 4.0
    """How often a source is used at most (Muennighoff et al. 2023: up to 4 times is nearly as good
    as new text); the other sources of its type give the rest, and then the other types."""
    tolerance: float = 0.01
    """How far the planned share of a type may be from the one asked for, over the run and in each
    stage; a build or run that is planned further off is refused. What a run really draws may be
    further off where it ends within a block of rows: it says so, and goes on."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 0, "tokens")
        thresholds.at_least(self, 1, "max_epochs")
        thresholds.shares(self, "tolerance")
        ends = [stage.until for stage in self.stages]
        if ends and (ends != sorted({end for end in ends if end > 0}) or ends[-1] != 1):
            raise ValueError(f"stages end until={ends}: shares of the run, increasing up to 1")
        lengths = [end - start for start, end in itertools.pairwise([0.0, *ends])]
        if any(round(length, 9) < LEAST_STAGE for length in lengths):
            raise ValueError(
                f"stages end until={ends}: each takes at least {LEAST_STAGE} of the run"
            )


def proportions(stages: Sequence[MixtureStageConfig]) -> dict[str, float]:
    """Type -> share of the whole run, whose stages may have other weights; empty without stages."""
    found: dict[str, float] = {}
    start = 0.0
    for stage in stages:
        total = sum(weight for _, weight in stage.weights)
        for kind, weight in stage.weights:
            share = weight / total * (stage.until - start)
            found[kind] = found.get(kind, 0.0) + share
        start = stage.until
    return found


def check(config: MixtureConfig, types: Collection[str]) -> None:
    """`ConfigError` unless each stage weighs each of these types, and nothing else, once."""
    for i, stage in enumerate(config.stages):
        names = [name for name, _ in stage.weights]
        for name in sorted({*names, *types}):
            if name not in types:
                rule = "no source has that type"
            elif names.count(name) != 1:
                rule = f"{names.count(name)} weights; give it one, 0 to leave it out"
            else:
                continue
            raise ConfigError(
                f"config.mixture.stages[{i}].weights: {name!r}: {rule}; types of the sources: "
                f"{', '.join(sorted(types))}"
            )


def without(config: MixtureConfig, types: Collection[str]) -> MixtureConfig:
    """The same proportions of the other types, where these are not to be had.

    `ConfigError` if a stage takes nothing else.
    """
    stages = []
    for i, stage in enumerate(config.stages):
        weights = tuple((name, weight) for name, weight in stage.weights if name not in types)
        if not any(weight for _, weight in weights):
            raise ConfigError(
                f"config.mixture.stages[{i}] takes only types that are not to be had: "
                f"{', '.join(sorted(types))}; get some text of them, or weigh others too"
            )
        stages.append(replace(stage, weights=weights))
    return replace(config, stages=tuple(stages))


def in_manifest(config: MixtureConfig, source_weights: Mapping[str, float]) -> manifest.Mixture:
    """As the manifest says it; `source_weights` are of its sources, buckets apart."""
    stages = tuple(manifest.MixtureStage(s.until, dict(s.weights)) for s in config.stages)
    return manifest.Mixture(stages, config.max_epochs, config.tolerance, dict(source_weights))
