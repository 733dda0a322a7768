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

from jaxlm import schedule
from jaxlm.schedule import Cost
from jaxlm.schema import ConfigError

HOUR = 3600.0
DAY = 24 * HOUR

WRITE_GBS = 1.0
"""Gigabytes a second that a host writes to where checkpoints lie, if nothing is said."""

RESTART_MINUTES = 10.0
"""From a preemption to the next step, if nothing is said."""


@dataclass(frozen=True)
class Preemption:
    """What is expected; seconds."""

    per_day: float
    """Of the whole job: all its machines together."""
    checkpoint_bytes: float
    write_bandwidth: float
    """Of all hosts together, to where checkpoints lie."""
    stall_s: float
    """Of a checkpoint, while the state is copied to the hosts."""
    commit_s: float
    """Until a checkpoint is whole."""
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
        return schedule.best_interval(Cost(self.stall_s, self.commit_s), self.per_day)

    @property
    def best_lost(self) -> float:
        """Share of the time that is lost with the best interval."""
        return self._lost(self.best_interval_s)

    def _lost(self, interval_s: float) -> float:
        between = DAY / self.per_day
        waste = (interval_s / 2 + self.commit_s + self.restart_s) / between
        return min(self.stall_s / (self.stall_s + interval_s) + waste, 1.0)


def check(per_day: float | None, write_gbs: float | None, restart_minutes: float | None) -> None:
    """`ConfigError` for a rate or time that is none, or that is about nothing; None: not given."""
    for flag, value in (("--preemptions-per-day", per_day), ("--write-gbs", write_gbs)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{flag}={value:g}: must be above 0 and finite")
    if restart_minutes is not None and not 0 <= restart_minutes < math.inf:
        raise ConfigError(f"--restart-minutes={restart_minutes:g}: must be 0 or more, and finite")
    for flag, value in (("--write-gbs", write_gbs), ("--restart-minutes", restart_minutes)):
        if value is not None and per_day is None:
            raise ConfigError(
                f"{flag}={value:g}: is about preemptions; give --preemptions-per-day too"
            )
