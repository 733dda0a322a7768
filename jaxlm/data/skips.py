"""Positions that training jumps over: `skips.json` in a work directory.

The file is a JSON list of windows [start, stop): positions start, start + 1, ..., stop - 1 are in
no batch. They are part of the order; the clock is still the position, which moves on over a window.
A window that the run made itself, going back from a spike, has the event's name as a third item.

The positions that are left have ranks 0, 1, 2, ...: batches are runs of ranks.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlm import records
from jaxlm.errors import UserError
from jaxlm.site import Workdir
from jaxlm.workdir import write_text

FILE = "skips.json"

EVENT = re.compile("[0-9a-z-]+")
"""Name of an event: a directory is called by it."""

LIMIT = 2**62
"""Positions are below it."""


class SkipsError(UserError):
    """Windows that cannot be used: names the window and the rule."""


class Skips:
    """Windows of positions that are skipped. Arrays in, arrays out: int64, below 2**62."""

    def __init__(self, windows: Sequence[Sequence[Any]] = ()):
        """`windows`: (start, stop) or (start, stop, event) each, in order; they may touch.

        `SkipsError` if one is wrong.
        """
        end = 0
        for start, stop, *_ in windows:
            if not 0 <= start < stop <= LIMIT:
                raise SkipsError(
                    f"window [{start}, {stop}): must start at 0 or later, end after its start, and "
                    "at 2**62 at most"
                )
            if start < end:
                raise SkipsError(
                    f"window [{start}, {stop}) starts before row {end}, where the one before it "
                    "ends; put the windows in order and merge those that overlap"
                )
            end = stop
        self.windows = tuple((int(start), int(stop)) for start, stop, *_ in windows)
        self.events = tuple(event[0] if event else None for _, _, *event in windows)
        """Of each window, the event that made it, or None."""
        self.entries = [
            [*window] if event is None else [*window, event]
            for window, event in zip(self.windows, self.events, strict=True)
        ]
        """The same as in the file."""
        self._starts, self._stops = np.array(self.windows, np.int64).reshape(-1, 2).T
        self._lost = np.concatenate([[0], np.cumsum(self._stops - self._starts)])
        """int64[K + 1]: positions in the first k windows."""

    def rank(self, positions: np.ndarray) -> np.ndarray:
        """How many positions before each of these are not skipped."""
        begun = np.searchsorted(self._starts, positions, side="left")
        ends = np.append(0, self._stops)[begun]
        return positions - self._lost[begun] + np.maximum(ends - positions, 0)

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """The positions of these ranks."""
        passed = np.searchsorted(self._starts - self._lost[:-1], ranks, side="right")
        return ranks + self._lost[passed]

    def positions(self, first: int, count: int) -> np.ndarray:
        """The next `count` positions from `first` on that are not skipped."""
        return self.at(self.rank(np.array([first])) + np.arange(count))

    def batch_before(self, first: int, size: int) -> np.ndarray:
        """int64[size]: the positions before this one that are not skipped; empty if too few."""
        rank = int(self.rank(np.array([first]))[0])
        return self.at(rank - size + np.arange(size)) if rank >= size else np.empty(0, np.int64)

    def next(self, position: int) -> int:
        """The first position from this one on that is not skipped."""
        return int(self.positions(position, 1)[0])

    def count(self, start: int, stop: int) -> int:
        """How many positions in [start, stop) are not skipped."""
        return int(np.diff(self.rank(np.array([start, stop])))[0])

    def holds(self, positions: np.ndarray) -> np.ndarray:
        """bool[N]: which of these are skipped."""
        return self.at(self.rank(positions)) != positions

    def with_event(self, start: int, stop: int, event: str) -> "Skips":
        """These and what is left of a window that an event makes."""
        found = list(self.entries)
        for begin, end in [*self.windows, (stop, stop)]:
            if start < begin:
                found.append([start, min(begin, stop), event])
            start = max(start, end)
            if start >= stop:
                break
        return Skips(sorted(found, key=lambda window: window[:2]))

    def overtaken(self, saved: "Skips", position: int) -> str | None:
        """The event whose window a checkpoint of this position has learned from, if there is one.

        `saved`: what was skipped when it was made.
        """
        for (start, stop), event in zip(self.windows, self.events, strict=True):
            rows = np.arange(start, min(stop, position))
            if event is not None and len(rows) and not saved.holds(rows).all():
                return event
        return None

    def before(self, position: int) -> tuple[tuple[int, int], ...]:
        """What is skipped before a position, as the fewest windows."""
        found: list[tuple[int, int]] = []
        for start, stop in self.windows:
            if start >= position:
                break
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, min(stop, position)))
        return tuple(found)


NO_SKIPS = Skips()


def load(workdir: Workdir) -> Skips:
    """The windows in a work directory, none without a file; `SkipsError` if it cannot be used."""
    path = workdir / FILE
    try:
        data = records.parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return NO_SKIPS
    except (OSError, ValueError) as e:
        raise SkipsError(
            f"{path}: cannot be read ({e}); restore it: without it the run would read the rows "
            "that it was told to skip"
        ) from None
    if not isinstance(data, list) or not all(map(_is_window, data)):
        raise SkipsError(f"{path}: must be a list of windows [start, stop], as [[800, 840]]")
    try:
        return Skips(data)
    except SkipsError as e:
        raise SkipsError(f"{path}: {e}") from None


def check_past(saved: Skips, now: Skips, position: int) -> None:
    """`SkipsError` if rows before a checkpoint's position are skipped that were not, or were."""
    if saved.before(position) != now.before(position):
        raise SkipsError(
            f"{FILE}: before the checkpoint's row {position} it skips {_words(now, position)}, "
            f"but the checkpoint was trained with {_words(saved, position)} skipped. Rows that are "
            "done cannot change: restore the file, or move the checkpoints after the first "
            "difference away by hand"
        )


def _words(skips: Skips, position: int) -> str:
    windows = [f"[{start}, {stop})" for start, stop in skips.before(position)]
    return ", ".join(windows) or "no rows"


def save(workdir: Workdir, skips: Skips) -> None:
    """Writes the file, whole, and so that it outlives the machine's power."""
    write_text(workdir / FILE, json.dumps(skips.entries) + "\n")


def _is_window(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (2, 3)
        and all(type(n) is int for n in value[:2])
        and all(isinstance(event, str) and EVENT.fullmatch(event) for event in value[2:])
    )
