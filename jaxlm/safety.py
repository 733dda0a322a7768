"""Configuration of what keeps a run safe: checkpoints, watches over loss, hangs and devices."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from jaxlm.schema import free, recorded


@dataclass(frozen=True)
class CheckpointConfig:
    """Full checkpoints, which a run resumes from, and snapshots, which it does not need.

    The last step is always saved whole. A snapshot has the parameters alone, in bfloat16.
    """

    every: str | None = free(None)
    """Save each time so much training has passed; None does not."""
    every_minutes: float | None = free(360.0)
    """Save when so many minutes have passed since the last save; agreed among all hosts."""
    at: tuple[str, ...] = free(())
    """Save at these moments too, ("1000 steps", "80 %"), and keep what was saved for ever."""
    preemptions_per_day: float | None = free(None)
    """Of the whole job, on spot machines. If set, saves come as often as loses the least time by
    their own measured cost, but no more seldom than `every_minutes`."""
    keep: int = free(3)
    """How many of the newest are kept."""
    keep_every: int | None = free(None)
    """Checkpoints of steps that are multiples of this are kept for ever."""
    snapshot_every: str | None = free(None)
    """As `every`, of snapshots."""
    snapshot_every_minutes: float | None = free(60.0)
    """As `every_minutes`, of snapshots."""
    snapshot_keep: int = free(3)
    """How many of the newest snapshots are kept."""
    snapshot_keep_every: int | None = free(None)
    """Snapshots of steps that are multiples of this are kept for ever."""

    def __post_init__(self) -> None:
        for keep, every in (("keep", "keep_every"), ("snapshot_keep", "snapshot_keep_every")):
            least = (getattr(self, keep), getattr(self, every))
            if any(n is not None and n < 1 for n in least):
                raise ValueError(f"{keep}={least[0]}, {every}={least[1]}: at least 1")
        for name in ("every_minutes", "snapshot_every_minutes", "preemptions_per_day"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1_000_000:
                raise ValueError(f"{name}={value}: must be above 0, and at most 1000000")


@dataclass(frozen=True)
class GuardConfig:
    """What is done about steps whose loss stands out; `jaxlm.guard` and `jaxlm.drift` judge them.

    A batch whose loss or gradient is not finite is never learned from, whatever is set here.
    """

    spike: Literal["off", "warn", "skip", "rollback"] = recorded("warn")
    """What a loss or gradient norm far above those before it leads to: a warning; the batch is not
    learned from; or the run goes back to the last full checkpoint, and jumps over the batch."""
    deviations: float = recorded(10.0)
    """How far is far: robust standard deviations above the median."""
    window: int = recorded(128)
    """Steps that the median is of."""
    margin: str = recorded("0 steps")
    """So much before and after the batch is jumped over with it, in whole batches: a loss often
    leaps some steps after what made it leap."""
    max_skipped: int = recorded(10)
    """Batches among the last `window` that may be left out, as spikes or as not finite; one more
    stops the run."""
    max_rollbacks: int = recorded(3)
    """Times that a run may go back; one more spike stops it."""
    max_evidence: int = free(20)
    """Steps that stand out of which a run keeps the batch, its documents, and `evidence_norms`."""
    evidence_norms: bool = free(True)
    """Whether gradient and activation norms by layer are kept too. The first event then waits for a
    program to be compiled, about as long as for the step."""
    drift: bool = free(True)
    """Whether to warn of small lasting shifts of the loss."""

    def __post_init__(self) -> None:
        if self.deviations <= 0:
            raise ValueError(f"deviations={self.deviations}: must be above 0")
        if not 32 <= self.window <= 100_000:
            raise ValueError(
                f"window={self.window}: must be from 32, to have a median of, to 100000: all of it "
                "is looked at each step"
            )
        for name in ("max_skipped", "max_rollbacks", "max_evidence"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0")


@dataclass(frozen=True)
class WatchConfig:
    """What is done about a run that hangs, and about a machine that goes away.

    A process that hangs, or is not heard of, ends the run with exit code 75: start me again.
    """

    patience: float = free(10.0)
    """A step, or a wait for rows, is a hang after so many times the median step time,"""
    least_seconds: float = free(120.0)
    """But never before so many seconds."""
    start_minutes: float = free(30.0)
    """Checks, data and initial parameters, each at most."""
    restore_minutes: float = free(60.0)
    """Reading a checkpoint, comparing its checksums included."""
    compile_minutes: float = free(90.0)
    """The first steps, until there are some to have a median of."""
    evaluate_minutes: float = free(60.0)
    """One evaluation, the norms of an event, or one check of devices, compilation included."""
    save_minutes: float = free(60.0)
    """The part of a save that steps wait for; at the end of a run, all of it."""
    barrier_minutes: float = free(20.0)
    """That processes wait for each other, at a start and beside saves, before they say who is
    missing."""
    heartbeat_seconds: float = free(60.0)
    """A process of which nothing was heard for so long is lost."""
    grace_seconds: float = free(30.0)
    """From SIGTERM, Ctrl-C, SIGHUP or the notice of a spot machine until the process ends, saved or
    not."""
    notice_seconds: float = free(90.0)
    """The same from SIGUSR1 or SIGUSR2, which a scheduler sends ahead, as Slurm's
    --signal=USR1@90, and from the notice of a maintenance."""
    notices: Literal["none", "gce"] = free("none")
    """Where to listen for notices besides signals: Google's metadata server."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 < value <= 1_000_000:
                raise ValueError(f"{field.name}={value}: must be above 0, and at most 1000000")


@dataclass(frozen=True)
class CorruptionConfig:
    """Devices that keep or compute wrong numbers, and say nothing: see `jaxlm.corruption`.

    A difference stops the run with exit code 78 and the name of the device.
    """

    compare_every: str | None = free("100 steps")
    """Compare what several devices hold copies of each time so much training has passed, at a start
    and before each save; None never does."""
    verify_every: str | None = free(None)
    """Do a step twice each time so much training has passed, and compare what comes of it; a copy
    of the state waits in host memory meanwhile. None never does."""
    deterministic: bool = recorded(False)
    """GPUs: only kernels that give the same bits each time, chosen once and kept in `autotune/` of
    the work directory; slower. Without it, a step done twice may differ in good health. CPUs give
    the same bits without it, TPUs by their maker's word."""
