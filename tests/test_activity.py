"""Every moment of a process is counted once, under the innermost thing that it was at."""

import time

import pytest

from jaxlm.activity import Activity, Record


def test_all_of_the_time_is_counted_once():
    record, began = Record(), time.monotonic()
    time.sleep(0.05)
    with record.during(Activity.STEP):
        time.sleep(0.02)
        with record.during(Activity.SAVE, "a barrier"):
            time.sleep(0.1)
            assert record.current[:2] == (Activity.SAVE, "a barrier")
            assert 0.1 <= time.monotonic() - record.current.since_s < 0.2
        assert record.current.activity == Activity.STEP
    spent = record.spent()
    assert sum(spent.values()) == pytest.approx(time.monotonic() - began, abs=0.01)
    assert spent[Activity.START] >= 0.05 and spent[Activity.SAVE] >= 0.1
    assert 0.02 <= spent[Activity.STEP] < 0.1
    assert spent[Activity.RESTORE] == 0


def test_what_raises_is_over_too():
    record = Record()
    with pytest.raises(OSError), record.during(Activity.SAVE):
        raise OSError
    assert record.current.activity == Activity.START


def test_only_the_wait_for_items_counts():
    def slowly():
        for i in range(3):
            time.sleep(0.05)
            yield i

    record = Record()
    with record.during(Activity.STEP):
        for _ in record.each(Activity.DATA, slowly()):
            assert record.current.activity == Activity.STEP
            time.sleep(0.02)
    assert 0.15 <= record.spent()[Activity.DATA] < 0.2
    assert 0.06 <= record.spent()[Activity.STEP] < 0.15


def test_a_wait_for_others_is_for_what_the_process_is_at():
    record = Record()
    with record.during(Activity.RESTORE), record.waiting("all have it"):
        assert record.current[:2] == (Activity.RESTORE, "all have it")


def test_to_look_is_no_change():
    """Else a watchdog that looks would never see a hang."""
    record = Record()
    with record.during(Activity.STEP):
        began = record.now()[1]
        time.sleep(0.01)
        record.spent()
        assert record.now()[1] == began
    assert record.now()[1] > began
