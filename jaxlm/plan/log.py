"""What a compiler says on standard error, from C++, where Python does not see it."""

import os
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

    It goes to a file, which is removed at the end: if the compiler takes the process down, its last
    words are still there, in `jaxlm-compiler-PID-*.log` of the directory for temporary files. What
    goes on is told meanwhile, every 30 s, to whoever waits.
    """

    def __init__(self, work: str) -> None:
        self.text = ""
        """All of it, once closed."""
        self._work = work
        self._closed = threading.Event()
        self._ticks = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Log":
        sys.stderr.flush()
        number, name = tempfile.mkstemp(".log", f"jaxlm-compiler-{os.getpid()}-")
        self._path = Path(name)
        self._before = os.dup(2)
        os.dup2(number, 2)
        os.close(number)
        self._ticks.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        self._closed.set()
        self._ticks.join()
        os.dup2(self._before, 2)
        os.close(self._before)
        self.text = self._path.read_text(encoding="utf-8", errors="replace")
        self._path.unlink()

    def _tick(self) -> None:
        start = time.monotonic()
        while not self._closed.wait(TICK_S):
            line = f"{self._work}: {time.monotonic() - start:.0f} s so far\n"
            os.write(self._before, line.encode())
