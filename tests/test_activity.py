"""Every moment of a process is counted once, under the innermost thing that it was at."""

import pytest

from jaxlm.activity import Activity, Record
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def test_all_of_the_time_is_counted_once(clock):
    record = Record()
    clock.s += 5
    with record.during(Activity.STEP):
        clock.s += 2
        with record.during(Activity.SAVE, "a barrier"):
            clock.s += 10
            assert record.current == (Activity.SAVE, "a barrier", clock.s - 10, False)
        assert record.current.activity == Activity.STEP
        clock.s += 1
    expected = {Activity.START: 5, Activity.STEP: 3, Activity.SAVE: 10}
    assert record.spent() == dict.fromkeys(Activity, 0) | expected


def test_what_raises_is_over_too():
    record = Record()
    with pytest.raises(OSError), record.during(Activity.SAVE):
        raise OSError
    assert record.current.activity == Activity.START


def test_only_the_wait_for_items_counts(clock):
    def slowly():
        for i in range(3):
            clock.s += 5
            yield i

    record = Record()
    with record.during(Activity.STEP):
        for _ in record.each(Activity.DATA, slowly()):
            assert record.current.activity == Activity.STEP
            clock.s += 2
    assert record.spent()[Activity.DATA] == 15
    assert record.spent()[Activity.STEP] == 6


def test_a_wait_for_others_is_for_what_the_process_is_at():
    record = Record()
    with record.during(Activity.RESTORE), record.waiting("all have it"):
        assert record.current[:2] == (Activity.RESTORE, "all have it")


def test_to_look_is_no_change(clock):
    """Else a watchdog that looks would never see a hang."""
    record = Record()
    with record.during(Activity.STEP):
        began = record.now()[1]
        clock.s += 1
        record.spent()
        assert record.now()[1] == began
    assert record.now()[1] > began
