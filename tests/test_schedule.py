"""When saves are due, by position and by the clock, and how often on machines that may go away."""

import math

import pytest

from jaxlm import schedule
from jaxlm.schedule import Cost, Schedule


def test_by_position():
    kind = Schedule(every_rows=40, every_s=math.inf, moments=(100, 130))
    asked = [end for end in range(8, 200, 8) if kind.asks(end - 8, end)]
    assert asked == [40, 80, 104, 120, 136, 160]
    assert [end for end in asked if kind.chosen(end - 8, end)] == [104, 136]
    assert [kind.next_row(row) for row in (0, 39, 40, 80, 100, 120)] == [40, 40, 80, 100, 120, 130]
    assert Schedule(None, math.inf, moments=(100,)).next_row(100) is None


def test_by_the_clock():
    assert Schedule(None, 600.0).interval_s(None) == 600.0
    assert Schedule(None, 600.0).interval_s(Cost(50.0, 100.0)) == 600.0


def test_on_machines_that_are_taken_away_the_cost_of_a_save_decides():
    kind = Schedule(None, 3600.0, preemptions_per_day=24.0)
    assert kind.interval_s(None) == 300.0  # nothing is known yet
    assert kind.interval_s(Cost(2.0, 60.0)) == math.sqrt(2 * 2.0 * 3600)
    assert kind.interval_s(Cost(2.0, 500.0)) == 500.0  # not before the last is whole
    assert kind.interval_s(Cost(1e6, 60.0)) == 3600.0  # never more seldom than asked


def lost(interval_s: float, stall_s: float, per_day: float) -> float:
    return stall_s / interval_s + interval_s / 2 * per_day / 86_400


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_no_other_interval_loses_less(factor):
    best = schedule.best_interval(Cost(3.0, 10.0), 5.0)
    assert lost(best, 3.0, 5.0) < lost(factor * best, 3.0, 5.0)
