"""A request to stop, and the time that is left for it: signals, and notices ahead of an end.

SIGTERM and Ctrl-C leave `watch.grace_seconds`; SIGUSR1 and SIGUSR2, which schedulers can send ahead
of an end, `watch.notice_seconds`. A process that has not saved by then ends all the same, with the
checkpoint before as it was. So does, at once, one that is asked before its first step, when there
is nothing to save, and one that gets SIGTERM or Ctrl-C twice. All with exit code 75.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from jaxlm.errors import RESTART
from jaxlm.safety import WatchConfig

URGENT = (signal.SIGTERM, signal.SIGINT)
AHEAD = (signal.SIGUSR1, signal.SIGUSR2)
"""As with Slurm's `--signal=USR1@90`."""


def end_at_once(why: str) -> NoReturn:
    """Ends the process whatever its threads are in, with exit code 75."""
    end_in(2.0)  # where nobody takes what is said
    try:
        print(f"jaxlm train: {why}; exit code {RESTART}", file=sys.stderr, flush=True)
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
        self._asked = threading.Event()
        self._urgent = 0
        self._timers: list[threading.Timer] = []

    def is_set(self) -> bool:
        """Whether it was asked to."""
        return self._asked.is_set()

    def ask(self, why: str, grace_s: float, urgent: bool = False) -> None:
        """Asks, from any thread. `urgent`: the second such request ends the process at once."""
        self._urgent += urgent
        if not self.steps_run:
            self.end(f"{why} before the first step: there is nothing to save")
        elif urgent and self._urgent == 2:
            self.end(f"{why} for the second time: ending without saving")
        late = f"not saved within {grace_s:g} s of {why}: the checkpoint before is as it was"
        timer = threading.Timer(grace_s, self.end, [late])
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        if not self._asked.is_set():
            self._asked.set()
            twice = "a second one" if urgent else "SIGTERM or Ctrl-C, twice,"
            line = f"{why}: saving after this step, within {grace_s:g} s; {twice} ends at once"
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """The time no longer runs."""
        for timer in self._timers:
            timer.cancel()


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
    before = {s: signal.signal(s, lambda *_: None) for s in (*URGENT, *AHEAD)}
    signal.set_wakeup_fd(outlet.fileno())
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        outlet.close()
        stop.close()
