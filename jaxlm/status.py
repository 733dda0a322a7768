"""Where a run is, by the files of its work directory alone; nothing is written."""

import contextlib
import math
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxlm import config, goodput, ledger, records, schedule, site, storage, workdir
from jaxlm.config import Config
from jaxlm.data import skips
from jaxlm.data.skips import Skips
from jaxlm.errors import UserError
from jaxlm.goodput import Goodput
from jaxlm.ledger import DONE, STOPPED, Line
from jaxlm.mirror import Mirror
from jaxlm.schedule import Schedule
from jaxlm.site import Workdir
from jaxlm.workdir import Place

State = Literal["training", "done", "stopped", "dead"]

TAIL_BYTES = 1 << 18
"""Of `metrics.jsonl`, which grows for as long as a run does."""
RECENT = 20
"""Reports that the speed is the median of."""


class Speed(NamedTuple):
    """The medians of the last reports."""

    step_time_s: float
    tokens_per_s: float
    mfu: float
    """NaN where the peak of the chip is not known."""
    data_wait_share: float


class Due(NamedTuple):
    """When the next save comes, whichever is first. None: that asks for none."""

    step: int | None
    """By the position."""
    time: float | None
    """By the clock; seconds since 1970."""


class Saved(NamedTuple):
    """The newest checkpoint of a kind."""

    step: int
    time: float
    """Seconds since 1970."""
    kept: int
    """How many there are."""


class _Report(NamedTuple):
    """What is used of a line of `metrics.jsonl`; None is what was not finite."""

    loss: float | None
    step_time_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    data_wait_share: float | None


class _Event(NamedTuple):
    """What is used of a line of `events.jsonl`."""

    kind: str
    step: int | None = None
    time: str = "?"
    event: str | None = None
    """Its name, if it has evidence."""


class _At(NamedTuple):
    """How far a run has come."""

    step: int
    position: int
    begun: float
    """When its last loop did; seconds since 1970."""


@dataclass(frozen=True)
class Status:
    """What is not known is None. Times are seconds since 1970, positions are rows."""

    state: State
    pid: int | None
    """Of the run's process 0, where one is there; 0 if it has not said it."""
    doing: str | None
    """As in `activity.Activity`."""
    heard: float | None
    """When the run last wrote down that it lived."""
    step: int
    position: int
    end: int
    steps: int | None
    """Of the whole run."""
    tokens: int | None
    """Targets, padding included."""
    tokens_end: int | None
    steps_per_s: float | None
    """By the wall clock, of late."""
    loss: float | None
    heldout: dict[str, float]
    """The last losses, by type."""
    speed: Speed | None
    goodput: Goodput | None
    """None without a ledger."""
    full: Saved | None
    full_due: Due | None
    snapshot: Saved | None
    snapshot_due: Due | None
    events: list[dict[str, Any]]
    """The lines of `events.jsonl`; of an event that was told again, after a resume, the last."""
    skips: Skips
    replicas: dict[str, Any] | None
    """What is compared between replicas, as the run has written it down."""

    @property
    def left_s(self) -> float | None:
        """To the end, at the rate of late."""
        if self.steps is None or self.steps_per_s is None:
            return None
        return (self.steps - self.step) / self.steps_per_s

    @property
    def counts(self) -> dict[str, int]:
        """Events by kind."""
        return dict(Counter(str(event.get("kind", "?")) for event in self.events))


def of(directory: Workdir, now: float | None = None) -> Status:
    """Reads it all. `UserError` where no run has begun.

    `now`: seconds since 1970, if it is not that of the clock.
    """
    pid, said, lines = site.holder(directory), _said(directory), ledger.read(directory)
    if said is None and not lines and pid is None:
        raise UserError(f"--workdir={directory}: is no work directory; has a run started?")
    now = time.time() if now is None else now
    found = goodput.of(lines, None if pid is None else now) if lines else None
    cfg, skipped = _config(directory), skips.load(directory)
    at, end = _place(said, lines), cfg.end if cfg else said.end if said else 0
    metrics = records.objects(workdir.texts(directory / workdir.METRICS, TAIL_BYTES))
    trained = [report for line in metrics if (report := records.of(_Report, line)) is not None]
    full, snapshot = _saved(directory, "full"), _saved(directory, "snapshots")
    state = _state(pid, said, found)
    running = cfg if state == "training" else None
    return Status(
        state=state,
        pid=pid,
        doing=lines[-1].doing if lines and pid is not None else None,
        heard=lines[-1].time if lines else None,
        step=at.step,
        position=at.position,
        end=end,
        steps=cfg and at.step + _steps(cfg, at, skipped),
        tokens=cfg and _rows(skipped, 0, at.position) * cfg.data.seq_len,
        tokens_end=cfg and _rows(skipped, 0, end) * cfg.data.seq_len,
        steps_per_s=goodput.steps_per_s(lines),
        loss=trained[-1].loss if trained else None,
        heldout=_heldout(metrics),
        speed=_speed(trained[-RECENT:]),
        goodput=found,
        full=full,
        full_due=running and _full_due(running, full, at, skipped),
        snapshot=snapshot,
        snapshot_due=running and _snapshot_due(running, snapshot, at, skipped),
        events=_events(directory),
        skips=skipped,
        replicas=workdir.replicas(directory),
    )


def as_data(status: Status) -> dict[str, Any]:
    """For JSON."""
    found = {name: _data(value) for name, value in vars(status).items()}
    found |= {"left_s": status.left_s, "counts": status.counts, "skips": status.skips.entries}
    if status.goodput is not None:
        found["goodput"] |= {
            "wall_s": status.goodput.wall_s,
            "share": status.goodput.share,
            "lost_steps": status.goodput.lost_steps,
            "attempts": [vars(attempt) for attempt in status.goodput.attempts],
        }
    return workdir.plain(found)


def _data(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else value


# ---- what the files say --------------------------------------------------------------------------


def _said(directory: Workdir) -> Place | None:
    """`status.json`, if it is there and a run's; a damaged one is as good as none."""
    return records.of(Place, workdir.read_object(directory / "status.json") or {})


def _config(directory: Workdir) -> Config | None:
    """None if it is not there, or of another version."""
    path = directory / "config.json"
    try:
        return config.load(path) if path.is_file() else None
    except UserError:
        return None


def _state(pid: int | None, said: Place | None, found: Goodput | None) -> State:
    if pid is not None:
        return "training"
    last = found.attempts[-1] if found else None
    end = said and said.state
    # Only an attempt that came further can have said so; it may have been killed right after.
    if last is not None and (last.end is not None or last.first_step == last.last_step):
        end = last.end
    return "done" if end == DONE else "stopped" if end == STOPPED else "dead"


def _place(said: Place | None, lines: list[Line]) -> _At:
    """As the run has last handed it to the devices, or has last said."""
    begun = max((line.time for line in lines if line.begins), default=0.0)
    for line in reversed(lines):
        if line.step is not None and line.position is not None:
            return _At(line.step, line.position, begun)
    return _At(said.step, said.position, begun) if said else _At(0, 0, begun)


def _rows(skipped: Skips, start: int, stop: int) -> int:
    """That are trained on."""
    return skipped.count(start, max(start, stop))


def _steps(cfg: Config, at: _At, skipped: Skips) -> int:
    """From there to the end of the run."""
    return _rows(skipped, at.position, cfg.end) // cfg.train.batch_size


def _heldout(metrics: list[dict[str, Any]]) -> dict[str, float]:
    for line in reversed(metrics):
        losses = {name: x for name, x in line.items() if name.endswith("/loss")}
        found = {name.split("/")[1]: x for name, x in losses.items() if records.fits(x, float)}
        if found:
            return found
    return {}


def _events(directory: Workdir) -> list[dict[str, Any]]:
    newest: dict[Any, dict[str, Any]] = {}
    for line in workdir.lines(directory / workdir.EVENTS):
        event = records.of(_Event, line)
        if event is None:
            continue
        name = event.event or (event.kind, event.step)
        newest.pop(name, None)
        newest[name] = line
    return list(newest.values())


def _speed(trained: list[_Report]) -> Speed | None:
    if not trained:
        return None

    def median(name: str) -> float:
        # What is not finite is null in the file: the peak of some chip is not known.
        values = (getattr(report, name) for report in trained)
        return statistics.median(math.nan if x is None else x for x in values)

    return Speed(*map(median, Speed._fields))


# ---- checkpoints ---------------------------------------------------------------------------------


def _saved(directory: Workdir, kind: str) -> Saved | None:
    if isinstance(directory, Mirror):
        at = f"{directory}/checkpoints/{kind}"
        steps = map(workdir.step_of, storage.entries(at)[1])
        markers = {step: f"{at}/{step}/{workdir.MARKER}" for step in steps if step is not None}
        times = {step: storage.modified(marker) for step, marker in markers.items()}
        found = {step: time for step, time in times.items() if time is not None}
    else:
        found = {}
        for path in (directory / "checkpoints" / kind).glob(f"*/{workdir.MARKER}"):
            step = workdir.step_of(path.parent.name)
            if step is not None:
                with contextlib.suppress(FileNotFoundError):  # the run has just deleted it
                    found[step] = path.stat().st_mtime
    return Saved(max(found), found[max(found)], len(found)) if found else None


def _full_due(cfg: Config, saved: Saved | None, at: _At, skipped: Skips) -> Due:
    by_position, by_clock = _due(cfg, schedule.of_full(cfg), saved, at, skipped)
    return Due(at.step + _steps(cfg, at, skipped) if by_position is None else by_position, by_clock)


def _snapshot_due(cfg: Config, saved: Saved | None, at: _At, skipped: Skips) -> Due:
    return _due(cfg, schedule.of_snapshots(cfg), saved, at, skipped)


def _due(cfg: Config, kind: Schedule, saved: Saved | None, at: _At, skipped: Skips) -> Due:
    """Before the last step."""
    step, row = None, kind.next_row(at.position)
    if row is not None:
        # A step has come to a row once it has done the row before, or one behind that.
        steps = _rows(skipped, at.position, row - 1) // cfg.train.batch_size + 1
        step = at.step + steps if steps < _steps(cfg, at, skipped) else None
    # With preemptions the interval hangs on what saves have cost, which the run alone knows.
    known = kind.preemptions_per_day is None and math.isfinite(kind.every_s)
    since = max(at.begun, saved.time if saved else 0.0)
    return Due(step, since + kind.every_s if known else None)
