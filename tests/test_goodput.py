"""Sums of made ledgers: each second is in one place, and what was done again is lost."""

import math
from collections.abc import Iterable

import pytest

from jaxlm import goodput
from jaxlm.activity import Activity
from jaxlm.goodput import BETWEEN, LOST, USEFUL
from jaxlm.ledger import DONE, STOPPED, Line

DAY = 1_800_000_000.0
"""When the made runs begin."""


class Process:
    """Writes the lines of an attempt as time goes by; its wall clock may jump."""

    def __init__(self, name: str, began: float):
        self.name, self.wall, self.step = name, began, None
        self.spent: dict[str, float] = {}
        self.lines: list[Line] = []

    def does(self, activity: Activity, seconds: float, to_step: int | None = None) -> "Process":
        self.spent = {**self.spent, activity: self.spent.get(activity, 0.0) + seconds}
        self.wall += seconds
        self.step = self.step if to_step is None else to_step
        return self.writes(activity)

    def begins(self, step: int) -> "Process":
        self.step = step
        return self.writes(Activity.START, begins=True)

    def writes(self, doing: str = "step", begins=False, end=None) -> "Process":
        position = None if self.step is None else 8 * self.step
        line = Line(self.name, self.wall, self.spent, doing, self.step, position, begins, end)
        self.lines.append(line)
        return self

    def ends(self, why: str) -> "Process":
        return self.writes(end=why)


def started(name: str, began: float, step: int, start_s: float = 10.0) -> Process:
    """In its loop."""
    process = Process(name, began).does(Activity.START, start_s / 2)
    return process.does(Activity.RESTORE, start_s / 2).begins(step).does(Activity.COMPILE, 20.0)


def added(*processes: Process, now: float | None = None) -> goodput.Goodput:
    lines = [line for process in processes for line in process.lines]
    return goodput.of(lines, now)


def check_sums(found: goodput.Goodput, wall_s: float) -> None:
    assert found.wall_s == pytest.approx(wall_s)
    assert sum(found.seconds.values()) == pytest.approx(wall_s)
    assert min(found.seconds.values()) >= 0.0
    assert found.share == pytest.approx(found.seconds[USEFUL] / wall_s)


def test_every_activity_has_a_place():
    assert {*Activity, USEFUL, LOST, BETWEEN} - {Activity.STEP} == set(goodput.WORDS)


def test_a_run_that_nothing_disturbs():
    run = started("a", DAY, 0).does(Activity.DATA, 2.0).does(Activity.STEP, 60.0, to_step=30)
    run.does(Activity.EVALUATE, 5.0).does(Activity.SAVE, 1.0).ends(DONE)
    found = added(run)
    check_sums(found, 98.0)
    assert found.seconds[USEFUL] == 60.0 and found.seconds[LOST] == 0.0
    assert [found.seconds[a] for a in (Activity.COMPILE, Activity.DATA)] == [20.0, 2.0]
    assert found.attempts == [goodput.Attempt(DAY, 98.0, 0, 30, DONE)]


def test_after_a_kill_the_steps_since_the_checkpoint_are_lost():
    first = started("a", DAY, 0)
    for step in range(10, 60, 10):
        first.does(Activity.STEP, 20.0, to_step=step)
    second = started("b", first.wall + 300.0, 20).does(Activity.STEP, 80.0, to_step=60).ends(DONE)
    found = added(first, second)
    check_sums(found, 30 + 100 + 300 + 30 + 80)
    assert found.lost_steps == 30 and found.seconds[LOST] == pytest.approx(60.0)
    assert found.seconds[USEFUL] == pytest.approx(40 + 80)
    assert found.seconds[BETWEEN] == pytest.approx(300.0)
    assert [a.lost_steps for a in found.attempts] == [30, 0]
    assert [a.end for a in found.attempts] == [None, DONE]


def test_between_two_lines_steps_take_the_same_time():
    first = started("a", DAY, 0).does(Activity.STEP, 100.0, to_step=50)
    second = started("b", first.wall, 40).does(Activity.STEP, 20.0, to_step=50).ends(DONE)
    found = added(first, second)
    assert found.lost_steps == 10 and found.seconds[LOST] == pytest.approx(20.0)


def test_a_step_that_a_line_caught_halfway_is_lost_whole():
    """Two lines of one step: it was handed over before the first, and took until after the next."""
    first = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10)
    first.does(Activity.STEP, 1.0, to_step=11).does(Activity.STEP, 30.0).does(Activity.STEP, 30.0)
    found = added(first, started("b", first.wall, 10).does(Activity.STEP, 60.0, to_step=11))
    assert found.lost_steps == 1 and found.seconds[LOST] == pytest.approx(61.0)
    assert found.seconds[USEFUL] == pytest.approx(70.0)


def test_going_back_inside_an_attempt_loses_its_steps():
    run = started("a", DAY, 0).does(Activity.STEP, 70.0, to_step=70)
    run.does(Activity.RESTORE, 3.0).begins(50).does(Activity.STEP, 30.0, to_step=80).ends(DONE)
    found = added(run)
    check_sums(found, 30 + 70 + 3 + 30)
    assert found.lost_steps == 20 and found.seconds[LOST] == pytest.approx(20.0)
    assert (found.attempts[0].first_step, found.attempts[0].last_step) == (0, 80)


def test_what_several_attempts_did_in_vain_is_lost_once():
    """The third goes back behind the start of the second."""
    first = started("a", DAY, 0).does(Activity.STEP, 100.0, to_step=100)
    second = started("b", first.wall, 80).does(Activity.STEP, 40.0, to_step=120)
    third = started("c", second.wall, 50).does(Activity.STEP, 100.0, to_step=150).ends(DONE)
    found = added(first, second, third)
    check_sums(found, 3 * 30 + 100 + 40 + 100)
    assert [a.lost_steps for a in found.attempts] == [50, 40, 0]
    assert found.seconds[LOST] == pytest.approx(90.0)
    assert found.seconds[USEFUL] == pytest.approx(150.0)


def test_an_attempt_that_never_came_to_a_step():
    first = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10).ends(STOPPED)
    lame = Process("b", first.wall + 5.0).does(Activity.START, 4.0).ends("Damaged: is not whole")
    third = started("c", lame.wall + 5.0, 10).does(Activity.STEP, 10.0, to_step=20).ends(DONE)
    found = added(first, lame, third)
    check_sums(found, 40 + 5 + 4 + 5 + 40)
    assert found.lost_steps == 0
    assert (found.attempts[1].first_step, found.attempts[1].end) == (None, "Damaged: is not whole")
    only = added(Process("a", DAY).writes("start"))
    assert only.wall_s == 0.0 and math.isnan(only.share)


def test_starts_of_a_run_that_is_done_are_none_of_its_time():
    run = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10).ends(DONE)
    again = Process("b", run.wall + 7 * 86400).does(Activity.START, 9.0).ends(DONE)
    refused = Process("c", again.wall + 1).does(Activity.START, 9.0).ends("ConfigError: no")
    check_sums(added(run, again, refused), 40.0)
    check_sums(added(run, again, refused, now=refused.wall), 40.0)
    longer = started("d", refused.wall + 1, 10).does(Activity.STEP, 10.0, to_step=20).ends(DONE)
    check_sums(added(run, again, refused, longer), longer.wall - DAY)


def test_a_clock_that_goes_back():
    first = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10)
    second = started("b", DAY - 3600, 10).does(Activity.STEP, 10.0, to_step=20)
    found = added(first, second)
    check_sums(found, 80.0)
    assert found.seconds[BETWEEN] == 0.0
    second.wall -= 7200  # inside an attempt
    second.does(Activity.STEP, 10.0, to_step=30).ends(STOPPED)
    third = started("c", second.wall + 60, 30).does(Activity.STEP, 10.0, to_step=40)
    found = added(first, second, third)
    check_sums(found, 80.0 + 10.0 + 60.0 + 40.0)
    check_sums(added(first, now=DAY - 50), 40.0)


def test_two_attempts_with_one_clock_and_lines_out_of_order():
    """Where the clock is put back between them."""
    first = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10)
    second = started("b", DAY, 10).does(Activity.STEP, 10.0, to_step=20)
    mixed = [*first.lines[:3], second.lines[0], *first.lines[3:], *second.lines[1:]]
    found = goodput.of(mixed)
    check_sums(found, 80.0)
    assert len(found.attempts) == 2 and found.lost_steps == 0


def test_a_run_that_goes_on_is_counted_to_now():
    run = started("a", DAY, 0).does(Activity.STEP, 10.0, to_step=10).does(Activity.EVALUATE, 5.0)
    found = added(run, now=run.wall + 12.0)
    check_sums(found, 57.0)
    assert found.seconds[Activity.EVALUATE] == pytest.approx(17.0)


def every(process: Process, steps: Iterable[int], seconds: float) -> Process:
    for step in steps:
        process.does(Activity.STEP, seconds, to_step=step)
    return process


def test_the_rate_is_that_of_late():
    slow = every(started("a", DAY, 0), range(1, 400), 20.0)
    assert goodput.steps_per_s(slow.lines) == pytest.approx(1 / 20)
    fast = every(slow, range(400, 2400), 2.0)
    assert goodput.steps_per_s(fast.lines) == pytest.approx(1 / 2)
    evaluated = every(fast.does(Activity.EVALUATE, 900.0), range(2400, 2850), 2.0)
    assert goodput.steps_per_s(evaluated.lines) == pytest.approx(1 / 4, rel=0.01)
    # A new attempt is asked as soon as it has a rate: it may be another machine.
    other = started("b", DAY + 1e6, 2000)
    assert goodput.steps_per_s([*fast.lines, *other.lines]) == pytest.approx(1 / 4, rel=0.01)
    other.does(Activity.COMPILE, 600.0, to_step=2001).does(Activity.STEP, 1.0, to_step=2003)
    assert goodput.steps_per_s([*fast.lines, *other.lines]) == pytest.approx(2.0)
    assert goodput.steps_per_s(started("c", DAY, 0).lines) is None
    assert goodput.steps_per_s([]) is None
