"""A request to stop, and the time that is left for it: signals, and notices ahead of an end.

SIGTERM, Ctrl-C and SIGHUP leave `watch.grace_seconds`; SIGUSR1 and SIGUSR2, which schedulers can
send ahead of an end, `watch.notice_seconds`. A process that has not saved by then ends all the
same, with the checkpoint before as it was. So does, at once, one that is asked before its first
step, when there is nothing to save, and one that is asked a second time. All with exit code 75.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from jaxlm import terminal
from jaxlm.activity import HERE, Record, StepTimes
from jaxlm.errors import RESTART
from jaxlm.safety import WatchConfig
from jaxlm.schedule import Cost

URGENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AHEAD = (signal.SIGUSR1, signal.SIGUSR2)
"""As with Slurm's `--signal=USR1@90`."""
SAME_S = 2.0
"""One end may send several: systemd and schedulers signal every process, and so does the launcher
once it is signalled; logind sends SIGTERM and SIGHUP, `timeout` to a process and its group."""

STEPS_ALONE, STEPS_TOGETHER = 2, 4
"""That a signal is followed by, at most, before the save begins. One process does the step that is
under way and the one handed over behind it. Of several each first tells the others, with a step
that is not handed over yet, and all read what they agreed on when the next one has been."""


def end_at_once(why: str) -> NoReturn:
    """Ends the process whatever its threads are in, with exit code 75."""
    end_in(2.0)  # where nobody takes what is said
    try:
        terminal.show(f"jaxlm train: {why}; exit code {RESTART}", sys.stderr)
        sys.stdout.flush()
    finally:
        os._exit(RESTART)


def end_in(seconds: float) -> threading.Timer:
    """Ends the process by then, whatever hangs, with exit code 75."""
    timer = threading.Timer(seconds, os._exit, [RESTART])
    timer.daemon = True
    timer.start()
    return timer


class Stop:
    """Whether this process was asked to stop, and what becomes of one that takes too long."""

    def __init__(self, end: Callable[[str], None] = end_at_once):
        self.end = end
        """Called where there is no more time, with the reason; does not return."""
        self.steps_run = False
        """Whether there is something to save: the loop says so after its first step."""
        self.steps = STEPS_TOGETHER
        """That may be done before the save begins."""
        self._asked = threading.Event()
        self._urgent_s: float | None = None
        """`time.monotonic()` of the first urgent request."""
        self._timers: list[threading.Timer] = []

    def is_set(self) -> bool:
        """Whether it was asked to."""
        return self._asked.is_set()

    def ask(self, why: str, grace_s: float, urgent: bool = False) -> None:
        """Asks, from any thread.

        `urgent`: a second such request ends the process at once. What comes within `SAME_S` of the
        first one is the same request.
        """
        now = time.monotonic()
        if not self.steps_run:
            self.end(f"{why} before the first step: there is nothing to save")
        elif urgent and self._urgent_s is not None:
            if now - self._urgent_s < SAME_S:
                return
            self.end(f"{why} for the second time: ending without saving")
        if urgent:
            self._urgent_s = now
        late = f"not saved within {grace_s:g} s of {why}: the checkpoint before is as it was"
        timer = threading.Timer(grace_s, self.end, [late])
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        if not self._asked.is_set():
            self._asked.set()
            twice = "a second one" if urgent else "SIGTERM or Ctrl-C, twice,"
            line = (
                f"{why}: saving after {self.steps} steps at most, within {grace_s:g} s; {twice} "
                "ends at once"
            )
            terminal.show(line, sys.stderr)

    def close(self) -> None:
        """The time no longer runs."""
        for timer in self._timers:
            timer.cancel()


class Haste:
    """Whether a stop would come in time: steps and a save before `watch.grace_seconds` are over."""

    def __init__(self, cfg: WatchConfig, steps: int, here: Record = HERE):
        """`steps`: that may be done before the save begins."""
        self._cfg, self._steps, self._times = cfg, steps, StepTimes(here)
        self._told = False

    def look(self, cost: Cost | None) -> str | None:
        """What is to be said of it, once; call it each step. `cost`: of the last save."""
        self._times.look()
        step_s, grace_s = self._times.median(), self._cfg.grace_seconds
        save_s = 0.0 if cost is None else cost.stall_s + cost.commit_s
        if self._told or step_s is None or self._steps * step_s + save_s <= grace_s:
            return None
        self._told = True
        save = "no save was timed yet" if cost is None else f"a save of {save_s:.3g} s"
        return (
            f"a stop would come too late: {self._steps} steps of {step_s:.3g} s may be done before "
            f"it saves, and {save}: {self._steps * step_s + save_s:.0f} s of "
            f"config.watch.grace_seconds={grace_s:g}. Set it to what machine and scheduler leave "
            "after SIGTERM; if that is less, have SIGUSR1 sent ahead, as long as "
            f"config.watch.notice_seconds={self._cfg.notice_seconds:g} says"
        )


@contextlib.contextmanager
def stop_signals(cfg: WatchConfig) -> Iterator[Stop]:
    """What signals ask of this process; call it from the main thread.

    A thread reads them: Python's own handlers run when the main thread returns from what it is in,
    and that may be a long compile, or the wait for a process that is gone.
    """
    stop = Stop()
    inlet, outlet = socket.socketpair()
    outlet.setblocking(False)

    def watch() -> None:
        with inlet:
            while numbers := inlet.recv(1):
                number = signal.Signals(numbers[0])
                urgent = number in URGENT
                stop.ask(number.name, cfg.grace_seconds if urgent else cfg.notice_seconds, urgent)

    threading.Thread(target=watch, daemon=True, name="jaxlm-signals").start()
    numbers = {*URGENT, *AHEAD}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # started with nohup
        numbers.remove(signal.SIGHUP)
    before = {s: signal.signal(s, lambda *_: None) for s in numbers}
    signal.set_wakeup_fd(outlet.fileno())
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        outlet.close()
        stop.close()
