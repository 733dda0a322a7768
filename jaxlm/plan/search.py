"""The best layout of a config on a target: many are estimated, a few compiled, the fastest kept."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax

from jaxlm.config import Config
from jaxlm.hardware import GIB
from jaxlm.plan import candidates, report
from jaxlm.plan.candidates import Candidate
from jaxlm.plan.figures import Plan
from jaxlm.plan.report import Options
from jaxlm.plan.target import Target

HOPELESS = 1.5
"""Times a device's memory: the first candidate may be estimated at so much, since estimates are not
corrected yet; not if it is the only one."""


@dataclass(frozen=True)
class Tried:
    """A candidate that was compiled."""

    candidate: Candidate
    plan: Plan


@dataclass(frozen=True)
class Search:
    """What was found."""

    estimated: int
    """Candidates that the shapes allow."""
    least_bytes: float
    """The smallest estimate of a device's memory among them."""
    tried: tuple[Tried, ...]
    """In the order of compiling."""
    failed: int = 0
    """Candidates that the compiler failed on."""

    @property
    def best(self) -> Tried | None:
        """The fastest that fits; None if none of those compiled does."""
        fitting = [t for t in self.tried if t.plan.fits]
        return min(fitting, key=lambda t: t.plan.rank_s, default=None)


def search(
    cfg: Config, target: Target, options: Options, compiles: int, say: Callable[[str], None]
) -> Search:
    """Compiles the most promising candidates, at most `compiles` of them, failures included.

    Each program that was compiled corrects the estimates: of memory, by the median of what was
    measured over what was estimated. A candidate that needs no less than one that did not fit is
    passed over.
    """
    found = candidates.candidates(cfg, target)
    waiting, tried, failed = list(found), [], 0
    for number in range(1, compiles + 1):
        hope = HOPELESS if number == 1 and compiles > 1 else 1.0
        chosen = choose(waiting, tried, target.chip.memory_bytes * hope)
        if chosen is None:
            break
        waiting.remove(chosen)
        say(f"compiling {number} of at most {compiles}: {describe(chosen)}")
        try:
            tried.append(Tried(chosen, report.plan(chosen.cfg, target, options)))
        except jax.errors.JaxRuntimeError as e:  # one that fails leaves the others
            say(f"the compiler fails: {str(e).partition('. ')[0]}")
            failed += 1
    return Search(len(found), min(c.memory_bytes for c in found), tuple(tried), failed)


def choose(waiting: list[Candidate], tried: list[Tried], limit: float) -> Candidate | None:
    """The next candidate to compile: the fastest by estimate that may fit `limit` and may win."""
    factors = sorted(t.plan.fit.peak / t.candidate.memory_bytes for t in tried)
    factor = factors[len(factors) // 2] if factors else 1.0
    failed = [t.candidate for t in tried if not t.plan.fits]
    for candidate in waiting:
        fits = candidate.memory_bytes * factor <= limit
        if fits and not any(f.needs_less(candidate) for f in failed):
            return candidate
    return None


def describe(candidate: Candidate) -> str:
    """A candidate in a few words."""
    mesh, train = candidate.cfg.mesh, candidate.cfg.train
    return (
        f"data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}, "
        f"{train.rows_per_device} rows, remat {candidate.cfg.model.remat}"
    )


def lines(found: Search, capacity: float) -> Iterator[str]:
    """A table of what was compiled, and the winner as overrides."""
    failed = f"; the compiler failed on {found.failed} more" if found.failed else ""
    yield f"{found.estimated} layouts estimated, {len(found.tried)} compiled{failed}"
    yield (
        f"{'data':>6}{'fsdp':>6}{'tensor':>7}{'rows':>6}{'remat':>11}{'GiB':>8}{'(est.)':>8}"
        f"{'step s':>18}{'(est.)':>8}  {'bound':<9}verdict"
    )
    best = found.best
    for t in found.tried:
        mesh, candidate = t.candidate.cfg.mesh, t.candidate
        roofline = t.plan.roofline
        step = "-" if roofline is None else f"{roofline.step_s:.3f} to {roofline.serial_s:.3f}"
        verdict = "best" if t is best else "fits" if t.plan.fits else "OUT OF MEMORY"
        yield (
            f"{mesh.data:>6}{mesh.fsdp:>6}{mesh.tensor:>7}"
            f"{candidate.cfg.train.rows_per_device:>6}{candidate.cfg.model.remat:>11}"
            f"{t.plan.fit.peak / GIB:>8.2f}{candidate.memory_bytes / GIB:>8.2f}"
            f"{step:>18}{candidate.rank_s:>8.3f}  "
            f"{roofline.bound if roofline else '-':<9}{verdict}"
        )
    remedy = "take a larger target, or set config.optim.offload, config.loss.vocab_blocks"
    if best is not None:
        yield "the best of them: " + " ".join(best.candidate.overrides())
    elif found.tried:
        yield f"none of those compiled fits {capacity / GIB:.2f} GiB: raise --compiles, {remedy}"
    elif found.failed:
        yield "none was compiled, since the compiler failed: raise --compiles, to try others"
    else:
        yield (
            f"none was compiled: the smallest estimate is {found.least_bytes / GIB:.2f} GiB, "
            f"against {capacity / GIB:.2f}; {remedy}"
        )
