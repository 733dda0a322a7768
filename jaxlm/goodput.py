"""Where the time of a run has gone, over all its attempts: the ledger, added up.

Every second from the start of the first process to the end is in one place: at what a process was
at, or between two of them. Of the time of steps, that of steps which were done again is lost.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jaxlm.activity import Activity
from jaxlm.ledger import DONE, Line

USEFUL, LOST, BETWEEN = "useful", "lost", "between"

WORDS = {
    USEFUL: "steps that count",
    LOST: "steps done again, after a failure or going back",
    Activity.START: "start-up: imports, other processes, data",
    Activity.RESTORE: "restoring checkpoints",
    Activity.COMPILE: "compiling the step",
    Activity.DATA: "waiting for rows",
    Activity.EVALUATE: "held-out loss, evidence, checks of devices",
    Activity.SAVE: "steps waiting for saves",
    BETWEEN: "between attempts",
}
"""What time goes to, in the order of a table."""

RECENT_S = 1800.0
"""What counts as of late."""


@dataclass
class Attempt:
    """One process 0, from its start to its last line."""

    began: float
    """When it was started, by its wall clock: seconds since 1970."""
    seconds: float
    """That it ran."""
    first_step: int | None
    """Where its loop began; None if it never came to it."""
    last_step: int | None
    end: str | None
    """As in `ledger.Line`; None: killed, its machine lost, or still running."""
    lost_steps: int = 0
    """Of its steps, those that were done again."""
    lost_s: float = 0.0
    """That they took."""


class Goodput(NamedTuple):
    """Of a run."""

    seconds: dict[str, float]
    """By `WORDS`: together all of the time."""
    attempts: list[Attempt]

    @property
    def wall_s(self) -> float:
        """From the start of the first process to the end of the last."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Of the time, what went to steps that count; NaN where there is no time."""
        return self.seconds[USEFUL] / self.wall_s if self.wall_s else math.nan

    @property
    def lost_steps(self) -> int:
        """Done again."""
        return sum(attempt.lost_steps for attempt in self.attempts)


def of(lines: Iterable[Line], now: float | None = None) -> Goodput:
    """Adds up the lines of a ledger.

    `now`: the wall clock's time, if the last process still runs: since its last line it is taken to
    have been at the same.
    """
    kept = _by_attempt(lines)
    if kept and now is not None:
        kept[-1].append(_later(kept[-1][-1], now))
    kept = list(_of_the_run(kept))
    seconds, track = dict[str, float].fromkeys(WORDS, 0.0), _Track()
    for attempt in kept:
        for activity, spent_s in attempt[-1].spent.items():
            name = USEFUL if activity == Activity.STEP else activity
            seconds[name] = seconds.get(name, 0.0) + spent_s
        track.add(attempt)
    seconds[LOST] = sum(attempt.lost_s for attempt in track.attempts)
    seconds[USEFUL] -= seconds[LOST]
    for before, after in pairwise(kept):  # a clock that was put back tells nothing
        seconds[BETWEEN] += max(0.0, _began(after) - before[-1].time)
    return Goodput(seconds, track.attempts)


def steps_per_s(lines: Iterable[Line]) -> float | None:
    """By the wall clock, in the last half hour of the last attempt that tells; None if none does.

    Waits for rows, evaluations and saves count, as they will come again; compiling does not.
    """
    for attempt in reversed(_by_attempt(lines)):
        looped = [line for line in attempt if line.step is not None]
        begins = max((i for i, line in enumerate(looped) if line.begins), default=0)
        after = [line for line in looped[begins:] if _step(line) > _step(looped[begins])]
        late = [line for line in after if line.age_s >= after[-1].age_s - RECENT_S]
        if late and _step(late[-1]) > _step(late[0]):
            return (_step(late[-1]) - _step(late[0])) / (late[-1].age_s - late[0].age_s)
    return None


class _Piece(NamedTuple):
    """Work that counts so far: steps `start` + 1 to `stop`."""

    start: int
    stop: int
    seconds: float
    attempt: Attempt


class _Track:
    """What counts of the work of attempts."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._pieces: list[_Piece] = []
        """In the order of steps."""

    def add(self, lines: Sequence[Line]) -> None:
        """Takes the lines of the next attempt."""
        looped = [line for line in lines if line.step is not None]
        first, last = (looped[0].step, looped[-1].step) if looped else (None, None)
        attempt = Attempt(_began(lines), lines[-1].age_s, first, last, lines[-1].end)
        self.attempts.append(attempt)
        for before, line in zip([None, *looped], looped, strict=False):
            if line.begins:
                self._cut(_step(line))
            start = line if before is None or line.begins else before
            seconds = line.step_s - (0.0 if before is None else before.step_s)
            self._pieces.append(_Piece(_step(start), _step(line), seconds, attempt))

    def _cut(self, step: int) -> None:
        """What lies after this step was in vain."""
        while self._pieces and self._pieces[-1].stop > step:
            piece = self._pieces.pop()
            steps, lost_s = piece.stop - max(piece.start, step), piece.seconds
            if piece.start < step:
                lost_s *= steps / (piece.stop - piece.start)
                rest_s = piece.seconds - lost_s
                self._pieces.append(_Piece(piece.start, step, rest_s, piece.attempt))
            piece.attempt.lost_steps += steps
            piece.attempt.lost_s += lost_s


def _by_attempt(lines: Iterable[Line]) -> list[list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.attempt, []).append(line)
    return list(found.values())


def _of_the_run(attempts: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """Without those that found it done, and did nothing."""
    done = False
    for attempt in attempts:
        if not done or attempt[-1].step is not None:
            yield attempt
            done = attempt[-1].end == DONE


def _began(attempt: Sequence[Line]) -> float:
    return attempt[0].time - attempt[0].age_s


def _later(line: Line, now: float) -> Line:
    more_s = max(0.0, now - line.time)
    spent = {**line.spent, line.doing: line.spent.get(line.doing, 0.0) + more_s}
    return line._replace(time=line.time + more_s, spent=spent)


def _step(line: Line) -> int:
    assert line.step is not None
    return line.step
