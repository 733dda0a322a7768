"""The figures of a plan: what it prints, and what it writes as JSON."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from jaxlm.plan.memory import Fit, Holders
from jaxlm.plan.preemption import Preemption
from jaxlm.plan.prices import Price
from jaxlm.plan.remedy import Remedy
from jaxlm.plan.roofline import Roofline

DOES_NOT_FIT = 2
"""Exit code of a plan that is out of memory: the config is wrong for the devices."""


@dataclass(frozen=True)
class Layout:
    """How the run is spread over the devices."""

    mesh: dict[str, int]
    batch_size: int
    seq_len: int
    microbatches: int
    rows_per_device: int
    """Rows that a device of the batch's shards takes at once."""
    remat: str
    offload: tuple[str, ...]
    """What waits in host memory: optimizer, activations."""
    vocab_blocks: int
    attention: str
    """The kernel that is compiled."""


@dataclass(frozen=True)
class Flops:
    """Of one device and step."""

    model: float
    """6 a parameter and token, and causal attention: half of the pairs."""
    model_all_pairs: float
    """The same with attention counted over all pairs of a row, as PaLM does."""
    expected: float
    """What the program should execute: the model's, and what the remat policy repeats."""
    executed: float
    """What it does: its products and kernels, loops multiplied."""

    @property
    def ratio(self) -> float:
        """Executed / model."""
        return self.executed / self.model


@dataclass(frozen=True)
class Traffic:
    """Of one kind of collective over some axes: bytes that a device sends in a step."""

    kind: str
    axes: tuple[str, ...]
    count: int
    bytes: float
    least: float
    """The written-out minimum."""
    synchronous: float
    """Of the bytes, those that nothing else can overlap, as the program's text has it."""


@dataclass(frozen=True)
class Run:
    """The whole of it, between perfect overlap and none."""

    params: int
    tokens: int
    steps: int
    step_s: float
    step_serial_s: float
    tokens_per_s: float
    """At most."""
    mfu: float
    """At most; attention halved."""
    mfu_all_pairs: float
    """At most; attention whole."""
    days: float
    days_serial: float
    chip_hours: float
    chip_hours_serial: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that is known of a run before it is paid for."""

    config: str = ""
    target: str
    chips: int
    devices: int
    layout: Layout
    memory: Holders
    fit: Fit
    alive: tuple[tuple[int, str], ...] = ()
    """(bytes, what) of the largest at the peak; only where a device does not hold it."""
    remedies: tuple[Remedy, ...] = ()
    """Only where a device does not hold it."""
    flops: Flops | None = None
    """None if the compiler refused the program."""
    traffic: tuple[Traffic, ...] = ()
    roofline: Roofline | None = None
    """None if there is no program, or the chip is not known."""
    run: Run | None = None
    price: Price | None = None
    preemption: Preemption | None = None
    notes: tuple[str, ...] = ()
    digest: str
    compile_s: float
    versions: dict[str, str]

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return self.fit.fits

    @property
    def rank_s(self) -> float:
        """Seconds of a step midway between perfect overlap and none, to sort plans by."""
        return float("inf") if self.roofline is None else self.roofline.rank_s

    def to_json(self) -> dict[str, Any]:
        """Plain data: bytes, seconds and FLOPs of one device and step."""
        data = dataclasses.asdict(self)
        data["memory"], data["fit"] = self.memory._asdict(), self.fit._asdict()
        data["fit"] |= {"fits": self.fits, "headroom": self.fit.headroom}
        data["remedies"] = [r._asdict() for r in self.remedies]
        if self.roofline is not None:
            r = self.roofline
            data["roofline"] |= {"bound": r.bound, "step_s": r.step_s, "serial_s": r.serial_s}
        if self.preemption is not None:
            p = self.preemption
            best = {"best_interval_s": p.best_interval_s, "best_lost": p.best_lost}
            data["preemption"] |= {"lost": p.lost, **best}
        if self.price is not None and self.price.read is not None:
            data["price"]["read"] = self.price.read.isoformat()
        return data
