"""The ledger of a run: `ledger.jsonl`, in which process 0 writes down where its time has gone.

Each line says anew how many seconds of the process went to what since it was started, so that one
that is lost or torn loses nothing else. `jaxlm.goodput` adds up the lines of all attempts.
"""

import contextlib
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterable
from itertools import accumulate
from operator import or_
from types import TracebackType
from typing import Any, NamedTuple, Self

from jaxlm import records, workdir
from jaxlm.activity import HERE, Activity
from jaxlm.errors import RESTART, UserError
from jaxlm.mirror import Mirror
from jaxlm.site import Workdir

FILE = "ledger.jsonl"

PERIOD_S, PERIOD_AT_MOST_S = 0.25, 10.0
"""Between lines, in an attempt's first minutes and after some hours: a kill loses as much."""
PERIOD_SHARE = 1e-3
"""In between, so much of the attempt so far."""
READ_LINES = 4000
"""Of more, not all are read: between two, steps are taken to have been equally long."""
PATIENCE_S, LEAVE_S = 5.0, 0.3
"""How long an end, and one at once, wait for a file system that does not answer."""

_NAMED, _BEGINS = len('{"attempt": "01234567"'), '"begins": true'
"""The length of what names an attempt in a line, and what says that a loop begins."""

DONE, STOPPED = "done", "stopped"
"""How an attempt ends that ends well."""


class Line(NamedTuple):
    """One line."""

    attempt: str
    """Of the process that wrote it: its own, whatever its number and its clock."""
    time: float
    """Of the wall clock, seconds since 1970: it may jump."""
    spent: dict[str, float]
    """Seconds by activity, since the process was started; of the monotonic clock."""
    doing: str
    """The activity at hand."""
    step: int | None = None
    """That was handed to the devices last; None before the first start of the loop."""
    position: int | None = None
    begins: bool = False
    """Whether the loop begins here, at a checkpoint perhaps of an earlier step."""
    end: str | None = None
    """In an attempt's last line: `DONE`, `STOPPED`, or what went wrong. A kill leaves none."""

    @property
    def age_s(self) -> float:
        """Of the process."""
        return sum(self.spent.values())

    @property
    def step_s(self) -> float:
        """That went to steps."""
        return self.spent.get(Activity.STEP, 0.0)


class Ledger:
    """Writes the lines of this process, from a thread of its own; `with` begins and ends it.

    What cannot be written is left out: no training ends for it. A run that is refused is left as it
    was.
    """

    def __init__(self, directory: Workdir | None):
        """`directory`: None where another process keeps the ledger; then nothing is written."""
        self._path = directory and directory / FILE
        self._attempt = secrets.token_hex(4)
        self._at: tuple[int | None, int | None] = None, None
        self._end: str | None = None
        self._lines = queue.SimpleQueue[Line | None]()
        """None is the end, without a line."""
        self._here = not isinstance(directory, Mirror)
        """Whether a file that is deleted is gone: to a store it may have been sent."""
        self._size = 0
        """Bytes of the file before this attempt."""
        self._thread = threading.Thread(target=self._write, name="jaxlm-ledger", daemon=True)

    def begin(self, step: int, position: int) -> None:
        """The loop begins at this step: those after it that were done before were in vain."""
        if self._at[0] is not None:
            self._lines.put(self._line())  # how far it had come
        self._at = step, position
        self._lines.put(self._line(begins=True))

    def at(self, step: int, position: int) -> None:
        """The loop has come to this step."""
        self._at = step, position

    def end(self, why: str) -> None:
        """What the attempt will have ended with, if nothing else comes."""
        self._end = why

    def leave(self, why: str) -> None:
        """The process is about to end at once; from any thread."""
        if self._thread.is_alive():
            self._lines.put(self._line(end=_first(why)))
            self._thread.join(LEAVE_S)

    def __enter__(self) -> Self:
        if self._path is not None:
            self._size = self._path.stat().st_size if self._path.exists() else 0
            self._lines.put(self._line())
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._path is None:
            return
        if _refused(error) and self._at[0] is None:
            self._lines.put(None)
            self._thread.join(PATIENCE_S)
            self._forget()
            return
        if error is not None:
            self._end = _first(f"{type(error).__name__}: {str(error).strip()}")
        self._lines.put(self._line(end=self._end or "ended"))
        self._thread.join(PATIENCE_S)

    def _forget(self) -> None:
        assert self._path is not None
        with contextlib.suppress(OSError):
            os.truncate(self._path, self._size)
            if self._size == 0 and self._here:
                self._path.unlink()

    def _line(self, begins: bool = False, end: str | None = None) -> Line:
        spent = {name.value: round(s, 3) for name, s in HERE.spent().items() if s}
        doing, now = HERE.current.activity.value, round(time.time(), 3)
        return Line(self._attempt, now, spent, doing, *self._at, begins, end)

    def _write(self) -> None:
        assert self._path is not None
        age_s = 0.0
        while True:
            period_s = min(max(PERIOD_S, PERIOD_SHARE * age_s), PERIOD_AT_MOST_S)
            try:
                line = self._lines.get(timeout=period_s)
            except queue.Empty:
                line = self._line()
            if line is None:
                return
            age_s = line.age_s
            with contextlib.suppress(OSError):  # the next line says all of it
                workdir.append_line(self._path, _as_data(line))
            if line.end is not None:
                return


def read(directory: Workdir) -> list[Line]:
    """The lines, oldest first; none where there is no ledger. What is no line is left out."""
    found = records.objects(_enough(workdir.texts(directory / FILE)))
    return [line for data in found if (line := records.of(Line, data)) is not None]


def _enough(texts: list[str]) -> Iterable[str]:
    """Of many lines the latest, some before, and the first and the last of each loop."""
    every, late = len(texts) // READ_LINES + 1, len(texts) - READ_LINES
    names = [text[:_NAMED] for text in texts]
    begins = (name != before for name, before in zip(names, ["", *names], strict=False))
    loops = (_BEGINS in text for text in texts)
    # Numbers of loops, and of what comes before the first one of an attempt.
    parts = [*accumulate(map(or_, begins, loops)), 0]
    for i, text in enumerate(texts):
        if i >= late or i % every == 0 or not parts[i - 1] == parts[i] == parts[i + 1]:
            yield text


def _refused(error: BaseException | None) -> bool:
    return isinstance(error, UserError) and error.exit_code != RESTART


def _first(text: str) -> str:
    """The first line, or as much as a table can bear."""
    return text.partition("\n")[0][:300]


def _as_data(line: Line) -> dict[str, Any]:
    fields = line._asdict().items()
    return {name: value for name, value in fields if value is not None and value is not False}
