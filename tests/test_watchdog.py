"""The watchdog on clocks and boards that the test moves: what trips it, and whom it names."""

import threading
import time
from collections.abc import Mapping
from queue import Queue
from typing import NamedTuple

import pytest

from jaxlm import cluster, watchdog
from jaxlm.activity import Activity, Record
from jaxlm.errors import EnvironmentProblem
from jaxlm.safety import WatchConfig
from jaxlm.signals import Stop
from jaxlm.watchdog import Diagnosis, Heard, Report, Watchdog, diagnose, limit_s, watching
from tests.clock import Clock

CFG = WatchConfig()


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def pass_time(dog: Watchdog, clock: Clock, seconds: float) -> Diagnosis | None:
    """Looks every second; the first diagnosis."""
    for _ in range(round(seconds)):
        clock.s += 1
        if diagnosis := dog.look():
            return diagnosis
    return None


def steps(dog: Watchdog, record: Record, clock: Clock, count: int, seconds: int) -> None:
    """So many steps of so many seconds, half of each waiting for data."""
    for _ in range(count):
        with record.during(Activity.DATA):
            assert pass_time(dog, clock, seconds / 2) is None
        record.step += 1
        with record.during(Activity.STEP):
            assert pass_time(dog, clock, seconds / 2) is None


def test_every_activity_has_a_limit():
    for activity in Activity:
        assert limit_s(CFG, activity, None) > CFG.least_seconds


def test_a_step_may_take_a_multiple_of_the_median_but_at_least_so_long():
    cfg = WatchConfig(patience=10, least_seconds=60, compile_minutes=5)
    assert limit_s(cfg, Activity.STEP, None) == 300  # too few
    assert limit_s(cfg, Activity.STEP, 8) == 80
    assert limit_s(cfg, Activity.DATA, 0.1) == 60


@pytest.mark.parametrize("activity", [Activity.STEP, Activity.DATA])
def test_a_process_that_hangs(clock, activity):
    record = Record()
    dog = Watchdog(CFG, here=record, clock=clock)
    with record.during(Activity.STEP):
        steps(dog, record, clock, 6, seconds=20)
        with record.during(activity):
            assert pass_time(dog, clock, 199) is None  # ten times 20 s
            diagnosis = pass_time(dog, clock, 5)
    assert diagnosis == Diagnosis(
        f"the run hangs: {activity} may take 200 s; process 0 is at step 6 in {activity} for 201 s"
    )


def test_long_work_with_a_name_trips_nothing(clock):
    record = Record()
    dog = Watchdog(CFG, here=record, clock=clock)
    with record.during(Activity.COMPILE):
        assert pass_time(dog, clock, 80 * 60) is None
    with record.during(Activity.STEP):
        steps(dog, record, clock, 5, seconds=2)
        for activity in (Activity.SAVE, Activity.EVALUATE):
            with record.during(activity):
                assert pass_time(dog, clock, 50 * 60) is None
        steps(dog, record, clock, 5, seconds=2)
        with record.during(Activity.SAVE):
            diagnosis = pass_time(dog, clock, 61 * 60)
    assert diagnosis is not None and "save may take 3600 s" in diagnosis.why


def test_evaluation_is_in_no_step_time(clock):
    record = Record()
    dog = Watchdog(CFG, here=record, clock=clock)
    with record.during(Activity.STEP):
        for _ in range(5):
            steps(dog, record, clock, 1, seconds=2)
            with record.during(Activity.EVALUATE):
                pass_time(dog, clock, 500)
        diagnosis = pass_time(dog, clock, 200)
    assert diagnosis is not None and "step may take 120 s" in diagnosis.why


def test_a_process_that_was_stopped_itself_has_not_hung(clock):
    record = Record()
    dog = Watchdog(CFG, here=record, clock=clock)
    with record.during(Activity.STEP):
        steps(dog, record, clock, 5, seconds=2)
        clock.s += 100_000  # as by Ctrl-Z, or a laptop that sleeps
        assert pass_time(dog, clock, 110) is None
        assert pass_time(dog, clock, 20) is not None


# ---- several processes ---------------------------------------------------------------------------


def heard(*reports: Report, ages: Mapping[int, float] | None = None) -> dict[int, Heard]:
    return {i: Heard(r, (ages or {}).get(i, 1.0)) for i, r in enumerate(reports)}


def at(step: int, activity: Activity, quiet_s: float, **more) -> Report:
    return Report(step, activity, quiet_s=quiet_s, limit_s=100, **{"beat": 1, **more})


def words(found: dict[int, Heard]) -> str:
    diagnosis = diagnose(found, lost_s=30)
    assert diagnosis is not None
    return diagnosis.why


def test_nobody_is_behind_while_none_is_stuck():
    assert diagnose(heard(at(7, Activity.STEP, 1), at(2, Activity.DATA, 99)), 30) is None


def test_who_waits_for_data_is_behind():
    found = heard(at(122, Activity.STEP, 101), at(120, Activity.DATA, 102))
    assert words(found) == (
        "the run hangs: data may take 100 s; process 1 is at step 120 in data for 102 s. "
        "The others: process 0 is at step 122 in step for 101 s"
    )


def test_who_does_not_wait_at_the_barrier_is_behind():
    waiting = at(20, Activity.SAVE, 105, detail="step 20 is saved", waits=True)
    found = heard(waiting, waiting, at(20, Activity.SAVE, 101))
    assert "; process 2 is at step 20 in save for 101 s. The others: process 0" in words(found)
    assert "in save (at the barrier 'step 20 is saved') for 105 s" in words(found)


def test_where_all_wait_alike_none_is_named_as_behind():
    found = heard(*[at(20, Activity.STEP, 101)] * 3)
    assert words(found).endswith(
        "process 2 is at step 20 in step for 101 s; none is behind the others"
    )


def test_who_waits_for_long_work_of_another_does_not_hang():
    found = heard(at(21, Activity.STEP, 500), at(20, Activity.EVALUATE, 90))
    assert diagnose(found, 30) is None
    waiting = at(20, Activity.SAVE, 500, detail="step 20 is saved", waits=True)
    assert diagnose(heard(waiting, at(20, Activity.SAVE, 90)), 30) is None
    assert "process 1 is at step 20 in evaluate for 101 s" in words(
        heard(at(21, Activity.STEP, 500), at(20, Activity.EVALUATE, 101))
    )


def test_who_has_not_come_to_its_watch_is_not_lost():
    found = heard(at(0, Activity.START, 3), Report(), ages={1: 500})
    assert diagnose(found, 30) is None


def test_who_is_not_heard_of_is_lost_whatever_the_others_do():
    found = heard(at(9, Activity.STEP, 3), at(8, Activity.DATA, 1), ages={1: 34})
    assert words(found) == (
        "the run has lost a process; process 1 has not been heard of for 34 s; it was at step 8 in "
        "data. The others: process 0 is at step 9 in step for 3 s"
    )


def test_who_has_left_is_not_missed():
    left = at(9, Activity.SAVE, 1, left=True)
    assert diagnose(heard(at(9, Activity.SAVE, 3), left, ages={1: 500}), 30) is None


def test_a_diagnosis_of_a_thousand_is_a_line():
    found = heard(*[at(20, Activity.STEP, 101)] * 1000)
    assert len(words(found)) < 600 and "and 992 more" in words(found)


def test_process_0_counts_from_the_last_beat(clock):
    record = Record()
    dog = Watchdog(CFG, me=0, count=2, here=record, clock=clock)
    with record.during(Activity.COMPILE):
        for beat in range(1, 200):
            dog.take({1: at(0, Activity.COMPILE, 1, beat=beat)}, None)
            assert pass_time(dog, clock, 5) is None
        for _ in range(12):
            dog.take({1: at(0, Activity.COMPILE, 1, beat=199)}, None)
            assert pass_time(dog, clock, 5) is None
        dog.take({1: at(0, Activity.COMPILE, 1, beat=199)}, None)
        diagnosis = dog.look()
    assert diagnosis is not None and "process 1 has not been heard of for 65 s" in diagnosis.why


def test_no_process_is_lost_while_process_0_gets_no_answer(clock):
    """It knows nothing of the others then."""
    dog = Watchdog(CFG, me=0, count=2, here=Record(), clock=clock)
    dog.take({1: at(0, Activity.START, 1, beat=1)}, None)
    assert pass_time(dog, clock, 1000) is None


def test_the_others_see_that_process_0_is_silent(clock):
    dog = Watchdog(CFG, me=1, count=2, here=Record(), clock=clock)
    dog.take({0: at(20, Activity.SAVE, 1, beat=1)}, None)
    assert pass_time(dog, clock, 60) is None
    diagnosis = pass_time(dog, clock, 2)
    assert diagnosis is not None
    assert "process 0 has not been heard of for 61 s; it was at step 20 in save" in diagnosis.why


def test_the_others_see_that_process_0_is_frozen(clock):
    """Its coordinator answers all the same."""
    dog = Watchdog(CFG, me=1, count=2, here=Record(), clock=clock)
    for _ in range(12):
        dog.take({0: at(20, Activity.SAVE, 1, beat=7)}, None)
        assert pass_time(dog, clock, 5) is None
    dog.take({0: at(20, Activity.SAVE, 1, beat=7)}, None)
    diagnosis = pass_time(dog, clock, 2)
    assert diagnosis is not None and "process 0 has not been heard of for 61 s" in diagnosis.why


def test_nobody_is_lost_after_all_were_asleep(clock):
    """As by `docker pause`."""
    dog = Watchdog(CFG, me=0, count=2, here=Record(), clock=clock)
    dog.take({1: at(0, Activity.START, 1, beat=1)}, None)
    assert pass_time(dog, clock, 5) is None
    clock.s += 1000
    assert dog.look() is None
    dog.take({1: at(0, Activity.START, 1, beat=1)}, None)
    assert pass_time(dog, clock, 5) is None


def test_the_others_do_what_process_0_says(clock):
    dog = Watchdog(CFG, me=1, count=2, here=Record(), clock=clock)
    told = Diagnosis("process 0: SIGTERM before the first step", hangs=False)
    dog.take({}, told)
    assert dog.look() == told


class Peer(NamedTuple):
    """Process 1 of 2, which has failed from the beginning, as process 0 sees it."""

    heard: threading.Event
    ended: Queue[str]
    """Why process 0 has ended at once."""


@pytest.fixture
def peer(monkeypatch) -> Peer:
    class Board:
        def __init__(self, me: int) -> None:
            pass

        def exchange(self, report: Report, told: Diagnosis | None) -> tuple[dict, Diagnosis]:
            found.heard.set()
            return {}, Diagnosis("process 1 has failed: no disk", False, failed=True)

    found = Peer(threading.Event(), Queue())
    monkeypatch.setattr(watchdog, "Board", Board)
    monkeypatch.setattr(watchdog, "end_at_once", found.ended.put)
    monkeypatch.setattr(watchdog, "end_in", lambda seconds: None)
    monkeypatch.setattr(cluster, "place", lambda: (0, 2))
    return found


def test_who_fails_too_does_so_in_its_own_words(tmp_path, peer):
    """Both are refused, and one says it first: not `75, start me again`, but its own exit code."""
    with (
        pytest.raises(EnvironmentProblem, match="no disk here"),
        watching(WatchConfig(heartbeat_seconds=0.5), tmp_path, Stop(), lambda why: None),
    ):
        assert peer.heard.wait(10)
        time.sleep(0.5)  # it has seen it
        raise EnvironmentProblem("no disk here")
    assert peer.ended.empty()


def test_who_does_not_fail_ends_with_the_words_of_the_other(tmp_path, peer, monkeypatch):
    monkeypatch.setattr(watchdog, "OWN_REASON_S", 0.2)
    with watching(WatchConfig(heartbeat_seconds=0.5), tmp_path, Stop(), lambda why: None):
        assert peer.ended.get(timeout=10) == "process 1 has failed: no disk"
