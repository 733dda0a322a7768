"""What preemptions cost a run: work lost since the last checkpoint, against saving more often.

Young's first-order model (1974; Daly 2006 refines it): a run that pauses `stall_s` for a checkpoint
every `interval_s`, and loses its machines every `between_s` on average, does no useful work for

    stall / interval  +  (interval / 2 + commit + restart) / between

of its time, which is least at interval = sqrt(2 stall between). Checkpoints are written beside the
training, so a run pauses only while the state is copied to the hosts; but until a checkpoint is
whole (`commit_s`), the one before it is what a preempted run goes back to.
"""

import math
from dataclasses import dataclass

from jaxlm.schema import ConfigError

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True)
class Preemption:
    """What is expected; seconds."""

    per_day: float
    """Of the whole job: all its machines together."""
    checkpoint_bytes: float
    write_bandwidth: float
    """Of all hosts together, to where checkpoints lie."""
    stall_s: float
    commit_s: float
    restart_s: float
    """Until the first step after a preemption: machines, compiling, restoring."""
    interval_s: float
    """Between checkpoints, as configured."""

    @property
    def lost(self) -> float:
        """Share of the time that is lost with the configured interval, at most 1."""
        return self._lost(self.interval_s)

    @property
    def best_interval_s(self) -> float:
        """The interval that loses least; a checkpoint cannot begin before the last is whole."""
        return max(math.sqrt(2 * self.stall_s * DAY / self.per_day), self.commit_s)

    @property
    def best_lost(self) -> float:
        """Share of the time that is lost with the best interval."""
        return self._lost(self.best_interval_s)

    def _lost(self, interval_s: float) -> float:
        between = DAY / self.per_day
        waste = (interval_s / 2 + self.commit_s + self.restart_s) / between
        return min(self.stall_s / (self.stall_s + interval_s) + waste, 1.0)


def preemption(
    *,
    per_day: float,
    checkpoint_bytes: float,
    write_bandwidth: float,
    copy_bandwidth: float,
    restart_s: float,
    interval_s: float,
) -> Preemption:
    """The expectation; `copy_bandwidth` is what all devices together copy to their hosts."""
    if not per_day > 0:
        raise ConfigError(f"--preemptions-per-day={per_day:g}: must be above 0")
    if not write_bandwidth > 0:
        raise ConfigError("--write-gbs: bytes per second to storage must be above 0")
    return Preemption(
        per_day=per_day,
        checkpoint_bytes=checkpoint_bytes,
        write_bandwidth=write_bandwidth,
        stall_s=checkpoint_bytes / copy_bandwidth,
        commit_s=checkpoint_bytes / write_bandwidth,
        restart_s=restart_s,
        interval_s=interval_s,
    )
