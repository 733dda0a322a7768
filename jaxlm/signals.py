"""A request to stop: SIGTERM, Ctrl-C, or SIGUSR1, which schedulers can send ahead of an end."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""As with Slurm's `--signal=USR1@300`."""


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that a signal sets; a second signal ends the process at once.

    A thread reads them: Python's own handlers run when the main thread returns from what it is in,
    and that may be a long compile, or the wait for a process that is gone.
    """
    asked = threading.Event()
    inlet, outlet = socket.socketpair()
    outlet.setblocking(False)

    def watch() -> None:
        with inlet:
            if inlet.recv(1):
                asked.set()
                print(
                    "stopping after this step, then saving; a second signal ends it at once",
                    file=sys.stderr,
                    flush=True,
                )
                if inlet.recv(1):
                    os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="jaxlm-signals").start()
    before = {s: signal.signal(s, lambda *_: None) for s in SIGNALS}
    signal.set_wakeup_fd(outlet.fileno())
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        outlet.close()
