"""The watchdog: sees when a run hangs, says which process is behind and at what, and ends it.

Every process posts what it is at on the coordinator's board every few seconds. Process 0 looks at
all of them; its diagnosis goes back over the board, so that all say the same and end with exit code
75, each with the stacks of its threads in `logs/`. So it is where a process has failed, but for
those that fail by themselves in the next seconds, often for the same reason. The others judge only
what it cannot: that it does not answer itself. No step is needed for any of it, no device and no
file.
"""

import contextlib
import faulthandler
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from jaxlm import cluster, terminal
from jaxlm.activity import HERE, Activity, Record, StepTimes
from jaxlm.safety import WatchConfig
from jaxlm.signals import Stop, end_at_once, end_in
from jaxlm.site import Workdir

EXCHANGE_AT_MOST_S = 2.0
BOARD = "jaxlm/watch"
OWN_REASON_S = 2.0
"""What a process has left, once another has failed, to end by itself: often for the same reason."""
NAMED = 8
"""Processes that a diagnosis names at most."""


class Report(NamedTuple):
    """What a process says of itself."""

    step: int = 0
    activity: str = Activity.START
    detail: str = ""
    waits: bool = False
    """Whether at a barrier, the one that `detail` names."""
    quiet_s: float = 0.0
    """How long it has been at nothing else."""
    limit_s: float = 0.0
    """How long it may be."""
    beat: int = 0
    """Of its watchdog."""
    left: bool = False
    """Whether it has ended in good order."""

    @property
    def stuck(self) -> bool:
        """Whether it takes longer than it may."""
        return self.quiet_s > self.limit_s


class Diagnosis(NamedTuple):
    """Why all are to end."""

    why: str
    hangs: bool = True
    """Whether stacks tell more."""
    failed: bool = False
    """Whether a process ends for a reason of its own, which others may have too."""


class Heard(NamedTuple):
    """The last that was heard of a process."""

    report: Report
    age_s: float
    """How long ago."""


def limit_s(cfg: WatchConfig, activity: Activity, step_s: float | None) -> float:
    """How long a process may be at one thing; `step_s`: median of the last steps, if known."""
    if activity not in (Activity.STEP, Activity.DATA):
        return 60 * getattr(cfg, f"{activity}_minutes")
    if step_s is None:
        return 60 * cfg.compile_minutes
    return max(cfg.patience * step_s, cfg.least_seconds)


def diagnose(heard: Mapping[int, Heard], lost_s: float) -> Diagnosis | None:
    """Who is behind, if a process is stuck or lost; None while all is well.

    Lost is who was heard of before, and not for `lost_s`. Else behind is who has done the fewest
    steps, and of those who does not wait for the others; as long as they are at something that may
    take so long, all is well.
    """
    here = {i: h for i, h in heard.items() if not h.report.left}
    lost = [i for i, h in here.items() if h.age_s > lost_s and h.report.beat]
    if lost:
        return Diagnosis(_words("the run has lost a process", here, lost, _of_lost))
    stuck = {i: h.report for i, h in here.items() if h.report.stuck}
    if not stuck:
        return None
    least = min(h.report.step for h in here.values())
    late = [i for i, h in here.items() if h.report.step == least]
    busy = [i for i in late if not here[i].report.waits]
    behind = [here[i].report for i in busy or late]
    if not any(r.stuck or r.activity in (Activity.STEP, Activity.DATA) for r in behind):
        return None
    worst = max(stuck.values(), key=lambda r: r.quiet_s / r.limit_s)
    why = f"the run hangs: {worst.activity} may take {worst.limit_s:.0f} s"
    return Diagnosis(_words(why, here, busy or late, _of_present))


def _words(
    why: str, heard: Mapping[int, Heard], behind: list[int], say: Callable[[int, Heard], str]
) -> str:
    """Names those behind, and some of the others."""
    others = [i for i in heard if i not in behind]
    named = [say(i, heard[i]) for i in behind[:NAMED]]
    more = len(behind) - len(named)
    line = f"{why}; {'; '.join(named)}{f'; and {more} more' if more else ''}"
    if not others:
        return line if len(behind) == 1 else f"{line}; none is behind the others"
    told = [_of_present(i, heard[i]) for i in others[: max(NAMED - len(named), 1)]]
    more = len(others) - len(told)
    return f"{line}. The others: {'; '.join(told)}{f'; and {more} more' if more else ''}"


def _of_lost(process: int, heard: Heard) -> str:
    return (
        f"{cluster.name(process)} has not been heard of for {heard.age_s:.0f} s; "
        f"it was {_place(heard.report)}"
    )


def _of_present(process: int, heard: Heard) -> str:
    return f"{cluster.name(process)} is {_place(heard.report)} for {heard.report.quiet_s:.0f} s"


def _place(report: Report) -> str:
    barrier = "at the barrier " if report.waits else ""
    detail = f" ({barrier}{report.detail!r})" if report.detail else ""
    return f"at step {report.step} in {report.activity}{detail}"


class Board:
    """Where processes post what they are at: in the coordinator's key-value store."""

    def __init__(self, me: int) -> None:
        self._me, self._client = me, cluster.key_values()

    def exchange(
        self, report: Report, told: Diagnosis | None
    ) -> tuple[dict[int, Report], Diagnosis | None]:
        """Process 0 gets the reports of all others, any other that of process 0."""
        mine, others = ("zero", "others") if self._me == 0 else ("others", "zero")
        self._post(f"{mine}/{self._me}", report)
        if told is not None:
            self._post("diagnosis/0", told)
        reports = {i: Report(*values) for i, values in self._posted(others)}
        found = [Diagnosis(*values) for _, values in self._posted("diagnosis")]
        return reports, next(iter(found), None)

    def _post(self, key: str, values: tuple) -> None:
        self._client.key_value_set(f"{BOARD}/{key}", json.dumps(values), allow_overwrite=True)

    def _posted(self, directory: str) -> Iterator[tuple[int, list]]:
        for key, text in self._client.key_value_dir_get(f"{BOARD}/{directory}/"):
            yield int(key.rpartition("/")[2]), json.loads(text)


class Watchdog:
    """Looks at this process, and at what is heard of others; threads call it, and tests."""

    def __init__(
        self,
        cfg: WatchConfig,
        me: int = 0,
        count: int = 1,
        here: Record = HERE,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._cfg, self._me, self._here, self._clock = cfg, me, here, clock
        self.tick_s = min(1.0, cfg.heartbeat_seconds / 10)
        self.exchange_s = min(EXCHANGE_AT_MOST_S, cfg.heartbeat_seconds / 6)
        self._looked_s = self._awake_s = self._exchanged_s = clock()
        self._heard = {i: (Report(), self._exchanged_s) for i in range(count)}
        self._step_times = StepTimes(here)
        self._told: Diagnosis | None = None
        self.report = Report()

    def look(self) -> Diagnosis | None:
        """Why this process is to end; None while all is well. Call it every tick."""
        now = self._clock()
        if now - self._looked_s > 5 * self.tick_s:  # it is we who were stopped, or asleep
            self._awake_s = now
        self._looked_s = now
        self._step_times.look()
        doing, changed_s = self._here.now()
        self.report = Report(
            self._here.step,
            doing.activity,
            doing.detail,
            doing.waits,
            now - max(changed_s, self._awake_s),
            limit_s(self._cfg, doing.activity, self._step_times.median()),
        )
        if self._told is not None:
            return self._told
        lost_s = self._cfg.heartbeat_seconds
        if self._me == 0:
            return diagnose(self._all(), lost_s)
        zero, beat_s = self._heard[0]
        silent = Heard(zero, now - max(beat_s, self._awake_s))
        if silent.age_s > lost_s:
            return diagnose({0: silent, self._me: Heard(self.report, 0.0)}, lost_s)
        return None

    def take(self, reports: Mapping[int, Report], told: Diagnosis | None) -> None:
        """What an exchange has brought."""
        now = self._clock()
        for i, report in reports.items():
            if report.beat != self._heard[i][0].beat:
                self._heard[i] = (report, now)
        self._exchanged_s = now
        self._told = self._told or told

    def _all(self) -> dict[int, Heard]:
        """As process 0 sees them: by its last exchange, which may itself be late."""
        heard = {
            i: Heard(report, self._exchanged_s - max(beat_s, self._awake_s))
            for i, (report, beat_s) in self._heard.items()
        }
        return {**heard, self._me: Heard(self.report, 0.0)}


class Watch:
    """The watchdog of this process, in threads of its own."""

    def __init__(self, cfg: WatchConfig, workdir: Workdir, last_word: Callable[[str], None]):
        """`last_word`: takes why the process ends at once."""
        self._workdir, self._last_word = workdir, last_word
        self._me, count = cluster.place()
        self._dog = Watchdog(cfg, self._me, count)
        self._board = Board(self._me) if count > 1 else None
        self._tell: Diagnosis | None = None
        self._left = False
        self._closing, self._now = threading.Event(), threading.Event()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._looks, daemon=True, name="jaxlm-watch")]
        if self._board is not None:
            exchanges = threading.Thread(
                target=self._exchanges, args=[self._board], daemon=True, name="jaxlm-board"
            )
            self._threads.append(exchanges)
        for thread in self._threads:
            thread.start()

    def end(self, why: str) -> None:
        """Ends this process at once, and tells the others why, if the board answers."""
        self._tell = Diagnosis(f"{cluster.name(self._me)}: {why}", hangs=False)
        if self._board is not None:
            self._now.set()
            time.sleep(0.3)
        self._last_word(why)
        end_at_once(why)

    def fail(self, why: str) -> None:
        """Tells the others that this process ends, for a reason of its own."""
        self._ending.set()
        self._tell = Diagnosis(f"{cluster.name(self._me)} has failed: {why}", False, failed=True)
        self._now.set()
        self._wait_for_readers()

    def close(self, in_good_order: bool) -> None:
        """Ends the watch. Who does not end in good order is missed by the others."""
        self._left = in_good_order
        self._ending.set()
        self._closing.set()
        self._now.set()
        for thread in self._threads:
            thread.join(5.0)

    def _looks(self) -> None:
        while not self._closing.wait(self._dog.tick_s):
            diagnosis = self._dog.look()
            if diagnosis is not None and not self._ends_by_itself(diagnosis):
                self._give_up(diagnosis)

    def _ends_by_itself(self, diagnosis: Diagnosis) -> bool:
        """Whether this process ends for a reason of its own, with the exit code and words for it.

        What is wrong with a run is found by all processes, and by one of them first.
        """
        return self._ending.wait(OWN_REASON_S if diagnosis.failed else 0)

    def _exchanges(self, board: Board) -> None:
        beat = 0
        while True:
            beat += 1
            closing = self._closing.is_set()
            report = self._dog.report._replace(beat=beat, left=closing and self._left)
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # its silence is seen
                reports, told = board.exchange(report, self._tell)
                self._dog.take(reports, told if self._tell is None else None)  # not our own
            if closing:
                return
            self._now.wait(self._dog.exchange_s)
            self._now.clear()

    def _give_up(self, diagnosis: Diagnosis) -> None:
        end_in(2.5 * self._dog.exchange_s + 10)  # the work directory may be what hangs
        self._tell, why = diagnosis, diagnosis.why
        if diagnosis.hangs:
            name = f"logs/stacks-{self._me}-{time.strftime('%Y%m%d-%H%M%S')}.txt"
            why = f"{why}\nThe stacks of all threads are in {self._workdir}/{name}"
            _write_stacks(self._workdir / name, diagnosis.why)
        self._wait_for_readers()
        self._last_word(why)
        end_at_once(why)

    def _wait_for_readers(self) -> None:
        """The board goes with process 0: it lets the others read it, and end, first."""
        if self._board is not None and self._me == 0:
            time.sleep(2.5 * self._dog.exchange_s + OWN_REASON_S + 1.0)


def _write_stacks(path: Path, why: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be no file
        faulthandler.dump_traceback(sys.stderr)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            print(f"--- {now} {socket.gethostname()} {os.getpid()}: {why}", file=file, flush=True)
            faulthandler.dump_traceback(file)


@contextlib.contextmanager
def watching(
    cfg: WatchConfig, workdir: Workdir, stop: Stop, last_word: Callable[[str], None]
) -> Iterator[None]:
    """Inside, the process is watched, and where it must end at once it tells the others why.

    A step that fails because another process is gone is no crash: it waits to be told which.
    `last_word` takes why the process ends at once.
    """
    watch, in_good_order = Watch(cfg, workdir, last_word), False
    stop.end = watch.end
    try:
        yield
        in_good_order = True
    except Exception as e:
        me, count = cluster.place()
        if isinstance(e, jax.errors.JaxRuntimeError) and count > 1:
            line = f"{cluster.name(me)}: {e}\nIs it that a process is lost?"
            terminal.show(line, sys.stderr)
            time.sleep(cfg.heartbeat_seconds + 3 * EXCHANGE_AT_MOST_S)
        watch.fail(str(e).partition("\n")[0] or type(e).__name__)
        raise
    finally:
        watch.close(in_good_order)
