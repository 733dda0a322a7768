"""What a compiler says on standard error, from C++, where Python does not see it."""

import os
import select
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

TICK_S = 30.0
"""Seconds between two signs of life."""


class Log:
    """Takes all that is written to the process's standard error while it is open.

    It goes to a file, which is removed at the end: if the compiler, or a kill, takes the process
    down, its last words are still there, in `jaxlm-compiler-PID-*.log` of the directory for
    temporary files. What goes on is told meanwhile, every 30 s, to whoever waits.

    Ctrl-C ends the process at once, with exit code 130, and removes the file: Python's own handler
    would wait until the compiler is done. A handler that somebody has set stays as it is.
    """

    def __init__(self, work: str) -> None:
        self.text = ""
        """All of it, once closed."""
        self._work = work
        self._watch = threading.Thread(target=self._watching, daemon=True)

    def __enter__(self) -> "Log":
        sys.stderr.flush()
        number, name = tempfile.mkstemp(".log", f"jaxlm-compiler-{os.getpid()}-")
        self._path = Path(name)
        self._before = os.dup(2)
        os.dup2(number, 2)
        os.close(number)
        self._signals, self._inlet = os.pipe()
        self._hears = _may_hear_signals()
        if self._hears:
            os.set_blocking(self._inlet, False)
            self._heard_before = signal.set_wakeup_fd(self._inlet)
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        if self._hears:
            signal.set_wakeup_fd(self._heard_before)
        os.close(self._inlet)
        self._watch.join()
        os.close(self._signals)
        os.dup2(self._before, 2)
        os.close(self._before)
        self.text = self._path.read_text(encoding="utf-8", errors="replace")
        self._path.unlink()

    def _watching(self) -> None:
        start = time.monotonic()
        while True:
            if not select.select([self._signals], [], [], TICK_S)[0]:
                line = f"{self._work}: {time.monotonic() - start:.0f} s so far\n"
                os.write(self._before, line.encode())
                continue
            heard = os.read(self._signals, 1)
            if not heard:  # closed
                return
            if heard[0] == signal.SIGINT:
                self._path.unlink()
                os._exit(128 + signal.SIGINT)


def _may_hear_signals() -> bool:
    """Only the main thread may ask for them; who has a handler of his own hears them himself."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
