"""The ledger's file: lines of a real process, whatever becomes of it and of the disk."""

import os
import subprocess
import sys
import time

import pytest

from jaxlm import ledger
from jaxlm.activity import HERE, Activity
from jaxlm.ledger import Ledger, Line


def test_lines_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "PERIOD_S", 3600.0)
    with Ledger(tmp_path) as book:
        book.begin(0, 0)
        with HERE.during(Activity.STEP):
            time.sleep(0.06)  # written in milliseconds
            book.at(7, 56)
            book.begin(3, 24)
        book.end(ledger.DONE)
    found = ledger.read(tmp_path)
    assert [line.step for line in found] == [None, 0, 7, 3, 3]
    assert [line.position for line in found] == [None, 0, 56, 24, 24]
    assert [line.begins for line in found] == [False, True, False, True, False]
    assert [line.end for line in found] == [*4 * [None], ledger.DONE]
    assert len({line.attempt for line in found}) == 1
    assert found[2].doing == Activity.STEP and found[-1].doing == Activity.START
    assert found[-1].step_s - found[1].step_s >= 0.05
    assert found[-1].time == pytest.approx(time.time(), abs=60)
    assert found[-1].age_s - found[0].age_s == pytest.approx(found[-1].time - found[0].time, abs=1)


def test_it_goes_on_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "PERIOD_S", 0.01)
    monkeypatch.setattr(ledger, "PERIOD_SHARE", 0.0)
    with Ledger(tmp_path) as book:
        book.begin(0, 0)
        book.at(1, 8)
        end = time.monotonic() + 30
        while len(ledger.read(tmp_path)) < 5:
            assert time.monotonic() < end
            time.sleep(0.01)
    ages = [line.age_s for line in ledger.read(tmp_path)]
    assert ages == sorted(ages)
    assert ledger.read(tmp_path)[-2].step == 1


def test_what_ends_an_attempt_is_written_down(tmp_path):
    with pytest.raises(ValueError, match="no good"), Ledger(tmp_path):
        raise ValueError("no good\nat all")
    assert ledger.read(tmp_path)[-1].end == "ValueError: no good"


def test_who_must_leave_at_once_says_why(tmp_path):
    book = Ledger(tmp_path)
    book.leave("nothing is written yet")
    with book:
        book.begin(0, 0)
        book.leave("the run hangs: step may take 30 s\nThe stacks are elsewhere")
        found = ledger.read(tmp_path)  # as the process would leave it
    assert [line.end for line in found] == [None, None, "the run hangs: step may take 30 s"]


def test_another_process_keeps_it():
    with Ledger(None) as book:
        book.leave("why")
        book.begin(0, 0)
        book.at(1, 8)
        book.end(ledger.DONE)


def test_a_disk_that_takes_nothing_ends_no_training(tmp_path):
    (tmp_path / ledger.FILE).mkdir()
    with Ledger(tmp_path) as book:
        book.begin(0, 0)
        book.end(ledger.DONE)


def test_a_line_that_is_torn_or_strange_is_left_out(tmp_path):
    with Ledger(tmp_path) as book:
        book.begin(0, 0)
    whole = ledger.read(tmp_path)
    with (tmp_path / ledger.FILE).open("a") as f:
        f.write('{"attempt": "x"}\n[]\n3\n{"attempt": "ab", "ti')
    assert ledger.read(tmp_path) == whole
    with Ledger(tmp_path):
        pass
    assert len(ledger.read(tmp_path)) == len(whole) + 2
    assert ledger.read(tmp_path / "nothing") == []


def test_a_process_counts_from_before_its_imports(tmp_path):
    """And one that is killed leaves what it had written."""
    program = (
        "import sys, time; time.sleep(0.3)\n"
        "from pathlib import Path\n"
        "from jaxlm.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])) as ledger:\n"
        "    ledger.begin(5, 40)\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
    )
    before = time.time()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        end = time.monotonic() + 30
        while len(ledger.read(tmp_path)) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
    found: list[Line] = ledger.read(tmp_path)
    assert found[0].age_s >= 0.3
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick <= found[0].time - found[0].age_s <= before + 60
    assert found[1].step == 5 and found[-1].end is None
