"""How far a stage has come: a bar on a terminal, a line a minute elsewhere."""

import sys
import time

from tqdm import tqdm

SECONDS = 60
"""Between two lines."""


class Progress:
    """Counts tasks and the bytes that they read."""

    def __init__(self, label: str, tasks: int, bytes: int):
        self._label, self._tasks, self._bytes = label, tasks, bytes
        self._done = self._read = 0
        self._started = self._shown = time.monotonic()
        # disable=None: no bar when stderr is not a terminal
        self._bar = tqdm(
            desc=label,
            total=bytes,
            unit="B",
            unit_scale=True,
            disable=None,
            leave=False,
            postfix=self._partitions(),
        )

    def update(self, bytes: int) -> None:
        """One task is done."""
        self._done += 1
        self._read += bytes
        self._bar.set_postfix_str(self._partitions(), refresh=False)
        self._bar.update(bytes)
        now = time.monotonic()
        if self._bar.disable and now - self._shown >= SECONDS:
            self._shown = now
            self.write(self.line(now - self._started))

    def line(self, seconds: float) -> str:
        """What is done, how fast, and how long the rest takes at that."""
        rate = self._read / seconds
        left = (self._bytes - self._read) / rate if rate else float("inf")
        return (
            f"{self._label}: {self._partitions()}, {self._read / 1e6:,.0f} of "
            f"{self._bytes / 1e6:,.0f} MB, {rate / 1e6:.1f} MB/s, {left / 60:.0f} min left"
        )

    def write(self, message: str) -> None:
        """A line that does not tear the bar."""
        self._bar.write(message, file=sys.stderr)

    def close(self) -> None:
        """Takes the bar away."""
        self._bar.close()

    def _partitions(self) -> str:
        return f"{self._done} of {self._tasks} partitions"
