"""A spike is told from noise and from falling losses, the same in an interrupted run."""

import json
import math

import numpy as np

from jaxlm.guard import NO_LIMITS, Guard, Seen
from jaxlm.safety import GuardConfig

CFG = GuardConfig()


def steps(count: int, seed: int = 0) -> list[Seen]:
    """A falling loss with noise, and a gradient norm with more; a row each, at its position."""
    random = np.random.default_rng(seed)
    return [
        Seen(i, 2 + 6 * i**-0.3 + random.normal(0, 0.02), abs(random.normal(0.5, 0.1)), i)
        for i in range(1, count + 1)
    ]


def judged(guard: Guard, seen: list[Seen]) -> list[int]:
    return [s.step for s in seen if guard.push(s, s.first) is not None]


def test_no_false_alarm_in_ten_thousand_steps():
    assert judged(Guard(CFG), steps(10_000)) == []


def test_a_spike_of_the_loss_or_of_the_gradient():
    run = steps(2000)
    run[1499] = run[1499]._replace(loss=run[1499].loss + 0.5)
    run[1799] = run[1799]._replace(grad_norm=10.0)
    assert judged(Guard(CFG), run) == [1500, 1800]


def test_a_gradient_norm_with_a_long_tail_is_no_spike():
    random = np.random.default_rng(1)
    run = [s._replace(grad_norm=0.4 * np.exp(random.normal(0, 0.25))) for s in steps(10_000)]
    assert judged(Guard(CFG), run) == []


def test_nothing_stands_out_while_little_is_known():
    few = CFG.window
    run = [s._replace(loss=100.0) if s.step == few else s for s in steps(few)]
    guard = Guard(CFG)
    assert judged(guard, run) == []
    assert guard.limits(few + 1, few + 1) == NO_LIMITS
    assert math.isfinite(guard.limits(few + 2, few + 2).loss)


def test_a_step_is_judged_by_those_before_the_last():
    """So that it does not matter how far the host has read when the step begins."""
    run = steps(300)
    early, late = Guard(CFG), Guard(CFG)
    for s in run[:298]:
        early.push(s, s.first)
        late.push(s, s.first)
    before = early.limits(300, 300)
    late.push(run[298], 299)
    assert late.limits(300, 300) == before


def test_a_guard_goes_on_from_its_memory():
    run = steps(400)
    run[350] = run[350]._replace(loss=9.0)
    whole, first = Guard(CFG), Guard(CFG)
    expected = [whole.push(s, s.first) for s in run]
    found = [first.push(s, s.first) for s in run[:340]]
    second = Guard(CFG, (), first.memory)
    assert found + [second.push(s, s.first) for s in run[340:]] == expected
    assert expected[350] is not None


def test_a_limit_is_what_the_step_compares_with():
    """In float32: what is above for the one is above for the other."""
    guard = Guard(CFG)
    judged(guard, steps(200))
    for limit in guard.limits(202, 202):
        assert limit == np.float32(limit)


def test_batches_left_out_are_counted_over_the_window_and_a_resume():
    guard = Guard(CFG)
    assert [guard.leave_out(step) for step in (10, 20, 21)] == [1, 2, 3]
    resumed = Guard(CFG, (), json.loads(json.dumps(guard.memory)))
    assert resumed.leave_out(20 + CFG.window) == 2
    assert resumed.leave_out(500) == 1


def test_off_is_off():
    run = steps(200)
    run[180] = run[80]._replace(loss=1e9)
    assert judged(Guard(GuardConfig(spike="off")), run) == []


def test_where_the_loss_changes_on_purpose_nothing_stands_out():
    """Until there is a window of steps behind the edge."""
    run = [s if s.first < 800 else s._replace(loss=s.loss + 3) for s in steps(1400)]
    run[1199] = run[1199]._replace(loss=run[1199].loss + 0.5)
    assert judged(Guard(CFG), run)[0] == 800
    assert judged(Guard(CFG, (800, 5000)), run) == [1200]


def test_an_edge_is_seen_alike_whatever_has_been_read_and_in_a_resumed_run():
    """Steps of 8 rows, the edge inside that of step 200: it is of neither side."""
    edges, rows = (1597,), lambda step: (8 * step - 8, 8 * step - 1)
    run = [s._replace(first=rows(s.step)[0]) for s in steps(400)]
    guard = Guard(CFG, edges)
    for s in run:
        step, last = s.step, rows(s.step)[1]
        ahead = guard.limits(step + 1, rows(step + 1)[1])  # this one is not read yet
        guard.push(s, last)
        resumed = Guard(CFG, edges, json.loads(json.dumps(guard.memory)))
        for each in (guard, resumed):
            assert each.limits(step + 1, rows(step + 1)[1]) == ahead
        full = CFG.window + 1 < step + 1 < 200 or step + 1 > 201 + CFG.window
        assert (ahead != NO_LIMITS) == full, step


def test_only_a_run_that_skips_has_its_steps_held_back():
    found = {}
    for spike in ("warn", "skip", "rollback", "off"):
        guard = Guard(GuardConfig(spike=spike))
        judged(guard, steps(200))
        found[spike] = guard.allowed(202, 202) != NO_LIMITS
    assert found == {"warn": False, "skip": True, "rollback": False, "off": False}
