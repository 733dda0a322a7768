"""The exit codes of `jaxlm train`, and what several processes' exits mean together."""

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

DONE = 0
USAGE = 2
"""Wrong usage, config or data: a restart cannot help."""
RESTART = 75
"""Start me again: preempted, out of time, a peer lost. A death by signal counts as this."""
ENVIRONMENT = 78
"""Wrong environment, such as a read-only workdir or a missing device: a restart cannot help."""


OF_ALL = -1
"""Index of a process that starts those of all hosts: `srun`."""

_MARK = "\x1elaunch-exit "
"""Begins a line in which a host's launcher says how its process has ended."""
_TAIL_CHARS = 400
"""Of a tail's lines in that line, which is read whole up to 64 KiB: 20 lines, 6 bytes each at most,
as of a control character."""


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
    stopped: bool = False
    """Whether somebody had asked it to end."""
    lost: bool = False
    """Whether it stands for processes on other hosts, of which none has said why."""

    @property
    def code(self) -> int:
        """What the exit means in the contract."""
        return RESTART if self.status < 0 or self.lost else self.status

    @property
    def graceful(self) -> bool:
        """Whether the process meant to end, so that its peers are ending too."""
        return self.status in (DONE, RESTART) and not self.lost

    @property
    def line(self) -> bytes:
        """For the launcher of all hosts."""
        tail = [line[:_TAIL_CHARS] for line in self.tail]
        said = json.dumps([self.index, self.status, tail, self.stopped], ensure_ascii=False)
        return f"{_MARK}{said}\n".encode(errors="replace")

    def __str__(self) -> str:
        who = "all hosts" if self.index == OF_ALL else f"process {self.index}"
        who = f"the launcher of {who}" if self.lost or self.index == OF_ALL else who
        if self.status < 0:
            names = {number.value: number.name for number in signal.Signals}
            return f"{who} was killed by {names.get(-self.status, f'signal {-self.status}')}"
        if self.lost:
            return f"{who} ended with exit code {self.status}, and has not said why"
        meaning = {
            DONE: "done",
            USAGE: "wrong usage, config or data",
            RESTART: "start me again",
            ENVIRONMENT: "wrong environment",
        }.get(self.status, "a crash")
        return f"{who} ended with exit code {self.status} ({meaning})"


def told(line: bytes) -> Exit | None:
    """What a host's launcher says in a line of output, as of now; None if it is another line."""
    if not line.startswith(_MARK.encode()):
        return None
    try:
        index, status, tail, stopped = json.loads(line[len(_MARK) :])
        tail = tuple(map(str, tail))
        return Exit(time.monotonic(), int(index), int(status), tail, bool(stopped))
    except (ValueError, TypeError, OverflowError, RecursionError):  # torn, or another's
        return None


def untold(line: bytes) -> bytes:
    """A line of a program's own, which tells of no exit whatever it says."""
    return line.replace(_MARK.encode(), b"")


def cause(exits: Sequence[Exit]) -> Exit | None:
    """The exit that decides for all; None if every process is done.

    It is the first in time that is not 0, since what follows it is mostly its consequence (a lost
    peer looks like a crash). But 2 and 78 from any process win: no restart can help them.
    """
    failed = sorted((e for e in exits if e.status != DONE), key=lambda e: e.time)
    hopeless = [e for e in failed if e.status in (USAGE, ENVIRONMENT)]
    return next(iter(hopeless + failed), None)
