"""What each technique saves and costs on a config, by compiling it with and without.

Textbooks give round shares of memory that a technique saves; they are of other models, other
batches and other compilers, and stand beside the figures of this one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax

from jaxlm.config import Config, MeshConfig
from jaxlm.plan import report
from jaxlm.plan.figures import Plan
from jaxlm.plan.report import Options
from jaxlm.plan.target import Target
from jaxlm.schema import ConfigError

type Change = Callable[[Config], Config]


class Technique(NamedTuple):
    """A pair of configs that differ in one thing; one of the two may be the config itself."""

    name: str
    without: Change
    using: Change
    textbook: str = ""
    """The share of memory that it is said to save."""


def _same(cfg: Config) -> Config:
    return cfg


def _replicas(cfg: Config) -> Config:
    mesh = cfg.mesh
    return replace(cfg, mesh=MeshConfig(mesh.data * mesh.fsdp, 1, mesh.tensor))


def _set(path: str, value: object) -> Change:
    section, name = path.split(".")
    return lambda cfg: replace(cfg, **{section: replace(getattr(cfg, section), **{name: value})})


TECHNIQUES: tuple[Technique, ...] = (
    Technique(
        "gradient checkpointing", _set("model.remat", "none"), _set("model.remat", "full"), "40%"
    ),
    Technique("fsdp (ZeRO-3)", _replicas, _same, "60%"),
    Technique(
        "bfloat16 compute",
        _set("model.compute_dtype", "float32"),
        _set("model.compute_dtype", "bfloat16"),
        "50%",
    ),
    Technique("fused attention", _set("model.attention", "reference"), _same, "30%"),
    Technique("loss in blocks", _set("loss.vocab_blocks", 1), _set("loss.vocab_blocks", 8)),
    Technique("optimizer offload", _set("optim.offload", False), _set("optim.offload", True)),
    Technique(
        "activation offload",
        _set("model.offload_activations", False),
        _set("model.offload_activations", True),
    ),
)
"""The first four with the shares that textbooks give."""


@dataclass(frozen=True)
class Ablation:
    """A technique, compiled both ways; None where it could not be, for the reason beside it."""

    technique: str
    textbook: str
    without: Plan | None
    using: Plan | None
    reason: str = ""

    @property
    def saved(self) -> float | None:
        """Share of a device's memory that the technique saves; negative if it takes more."""
        if self.without is None or self.using is None:
            return None
        return 1 - self.using.fit.peak / self.without.fit.peak

    def cost(self, of: Callable[[Plan], float | None]) -> float | None:
        """A figure with the technique, as a multiple of the one without; None if one is unknown."""
        if self.without is None or self.using is None:
            return None
        before, after = of(self.without), of(self.using)
        return None if not before or after is None else after / before


def ablate(
    cfg: Config,
    target: Target,
    options: Options,
    say: Callable[[str], None],
    planned: Plan,
) -> Iterator[Ablation]:
    """Compiles each technique's pair, each program once; `planned` is that of the config itself."""
    cfg = replace(cfg, mesh=MeshConfig(**planned.layout.mesh))  # without the -1 that it may have
    done: dict[Config, Plan | ConfigError] = {cfg: planned}

    def compiled(variant: Config, name: str) -> Plan | ConfigError:
        if variant not in done:
            say(f"compiling {name}")
            try:
                done[variant] = report.plan(variant, target, options)
            except ConfigError as e:
                done[variant] = e
            except jax.errors.JaxRuntimeError as e:  # one that fails leaves the others
                done[variant] = ConfigError(f"the compiler fails: {str(e).partition('. ')[0]}")
        return done[variant]

    for technique in TECHNIQUES:
        with_it, without = technique.using(cfg), technique.without(cfg)
        if with_it == without:
            yield Ablation(technique.name, technique.textbook, None, None, "not used by the config")
            continue
        pair = (
            compiled(without, f"without {technique.name}"),
            compiled(with_it, f"with {technique.name}"),
        )
        plans = [p if isinstance(p, Plan) else None for p in pair]
        reasons = [str(p) for p in pair if isinstance(p, ConfigError)]
        yield Ablation(technique.name, technique.textbook, plans[0], plans[1], "; ".join(reasons))


def lines(ablations: Iterable[Ablation]) -> Iterator[str]:
    """A table of them, a line as soon as there is one."""
    yield (
        f"{'technique':<24}{'without':>10}{'with':>10}{'saves':>8}{'textbook':>10}"
        f"{'FLOPs':>8}{'HBM':>8}{'wire':>8}{'step':>8}"
    )
    for a in ablations:
        if a.without is None or a.using is None:
            yield f"{a.technique:<24}{a.reason}"
            continue
        saved = a.saved
        yield (
            f"{a.technique:<24}{_gib(a.without):>10}{_gib(a.using):>10}"
            f"{'?' if saved is None else f'{saved:.0%}':>8}{a.textbook or '-':>10}"
            f"{_times(a.cost(_flops)):>8}{_times(a.cost(_hbm)):>8}{_times(a.cost(_wire)):>8}"
            f"{_times(a.cost(_step)):>8}"
        )


def _gib(plan: Plan) -> str:
    return f"{plan.fit.peak / 2**30:.2f}{'' if plan.fits else ' OOM'}"


def _times(factor: float | None) -> str:
    return "?" if factor is None else f"x{factor:.2f}"


def _flops(plan: Plan) -> float | None:
    return None if plan.flops is None else plan.flops.executed


def _hbm(plan: Plan) -> float | None:
    return None if plan.roofline is None else plan.roofline.memory


def _wire(plan: Plan) -> float | None:
    return None if plan.flops is None else sum(row.bytes for row in plan.traffic)


def _step(plan: Plan) -> float | None:
    return None if plan.roofline is None else plan.rank_s
