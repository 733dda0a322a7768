"""The exit codes of `jaxlm train`, and what several processes' exits mean together."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

DONE = 0
USAGE = 2
"""Wrong usage, config or data: a restart cannot help."""
RESTART = 75
"""Start me again: preempted, out of time, a peer lost. A death by signal counts as this."""
ENVIRONMENT = 78
"""Wrong environment, such as a read-only workdir or a missing device: a restart cannot help."""


@dataclass(frozen=True)
class Exit:
    """The end of one process."""

    time: float
    """Monotonic clock, seconds."""
    index: int
    status: int
    """Exit code; minus the signal's number for a death by signal."""
    tail: tuple[str, ...]
    """The last lines it wrote."""

    @property
    def code(self) -> int:
        """What the exit means in the contract."""
        return RESTART if self.status < 0 else self.status

    @property
    def graceful(self) -> bool:
        """Whether the process meant to end, so that its peers are ending too."""
        return self.status in (DONE, RESTART)

    def __str__(self) -> str:
        if self.status < 0:
            return f"process {self.index} was killed by {signal.Signals(-self.status).name}"
        meaning = {
            DONE: "done",
            USAGE: "wrong usage, config or data",
            RESTART: "start me again",
            ENVIRONMENT: "wrong environment",
        }.get(self.status, "a crash")
        return f"process {self.index} ended with exit code {self.status} ({meaning})"


def cause(exits: Sequence[Exit]) -> Exit | None:
    """The exit that decides for all; None if every process is done.

    It is the first in time that is not 0, since what follows it is mostly its consequence (a lost
    peer looks like a crash). But 2 and 78 from any process win: no restart can help them.
    """
    failed = sorted((e for e in exits if e.status != DONE), key=lambda e: e.time)
    hopeless = [e for e in failed if e.status in (USAGE, ENVIRONMENT)]
    return next(iter(hopeless + failed), None)
