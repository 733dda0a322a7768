"""What this process is doing, and how long it has been doing what: for its watchdog and its ledger.

Of the main thread alone, which does one thing at a time; other threads may look.
"""

import contextlib
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Activity(StrEnum):
    """What the time of a process goes to."""

    START = "start"
    """Up to its loop: imports, other processes, checks, data, initial parameters."""
    RESTORE = "restore"
    COMPILE = "compile"
    """Of the step, up to handing over the first one."""
    DATA = "data"
    """Waiting for rows."""
    STEP = "step"
    """Handing steps to the devices and waiting for them."""
    EVALUATE = "evaluate"
    SAVE = "save"
    """The part of a save that the steps wait for."""


class Doing(NamedTuple):
    """What the process is at."""

    activity: Activity
    detail: str
    """As what a barrier is about; may be empty."""
    since_s: float
    """`time.monotonic()` when it began."""
    waits: bool = False
    """Whether for other processes, at the barrier that `detail` names."""


class Record:
    """What was done when; `HERE` is that of this process."""

    def __init__(self, before_s: float = 0.0) -> None:
        """`before_s`: that the process has run already."""
        self._lock = threading.RLock()  # a signal's handler may look too
        """Held while the two below change together."""
        self._counted_s = time.monotonic() - before_s
        """Up to when `_spent` counts."""
        self._stack = [Doing(Activity.START, "", self._counted_s)]
        self._spent = dict.fromkeys(Activity, 0.0)
        self._changed_s = self._counted_s
        self.step = 0
        """The step that the process is at, as its loop says."""

    @contextlib.contextmanager
    def during(self, activity: Activity, detail: str = "", waits: bool = False) -> Iterator[None]:
        """Inside, the process is at this; afterwards again at what it was at before."""
        with self._lock:
            self._count()
            self._stack.append(Doing(activity, detail, self._counted_s, waits))
            self._changed_s = self._counted_s
        try:
            yield
        finally:
            with self._lock:
                self._count()
                self._stack.pop()
                self._changed_s = self._counted_s

    def waiting(self, barrier: str) -> AbstractContextManager[None]:
        """Inside, the process waits for others, for the sake of what it is at."""
        return self.during(self.current.activity, barrier, waits=True)

    def each[T](self, activity: Activity, items: Iterable[T]) -> Iterator[T]:
        """The items; while it waits for one, the process is at this."""
        rest = iter(items)
        while True:
            with self.during(activity):
                try:
                    item = next(rest)
                except StopIteration:
                    return
            yield item

    @property
    def current(self) -> Doing:
        """The innermost thing that the process is at."""
        return self._stack[-1]

    def now(self) -> tuple[Doing, float]:
        """The same, and `time.monotonic()` of the last change: a hang has none."""
        with self._lock:
            return self.current, self._changed_s

    def spent(self) -> dict[Activity, float]:
        """Seconds that went to each so far."""
        with self._lock:
            found, now = dict(self._spent), time.monotonic()
            found[self.current.activity] += now - self._counted_s
        return found

    def _count(self) -> None:
        now = time.monotonic()
        self._spent[self.current.activity] += now - self._counted_s
        self._counted_s = now


FEW = 3
"""Step times that a median needs at least."""


class StepTimes:
    """How long the last steps took, waits for rows included, by the record of a process."""

    def __init__(self, here: Record) -> None:
        self._here = here
        self.last_s: deque[float] = deque(maxlen=101)
        self._step, self._trained_s = here.step, 0.0

    def look(self) -> None:
        """Call it about as often as steps are done, or oftener."""
        spent = self._here.spent()
        trained_s = spent[Activity.STEP] + spent[Activity.DATA]
        done = self._here.step - self._step
        if done > 0 and self._step > 0:
            self.last_s.append((trained_s - self._trained_s) / done)
        if done:
            self._step, self._trained_s = self._here.step, trained_s

    def median(self) -> float | None:
        """Of a step, in seconds; None while there are too few."""
        return statistics.median(self.last_s) if len(self.last_s) >= FEW else None


def process_age_s() -> float:
    """Seconds since this process was started; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0.0
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


HERE = Record(process_age_s())
