import pytest

from launch import exits
from launch.exits import Exit, cause


def exit_(index: int, status: int, time: float) -> Exit:
    return Exit(time, index, status, ())


@pytest.mark.parametrize(
    ("statuses", "index"),
    [
        ([0, 0], None),
        ([0, 75], 1),
        ([-9, 1], 0),  # a lost peer looks like a crash: the death came first
        ([1, -6], 0),
        ([75, 2], 1),
        ([-9, 78], 1),
        ([78, 2], 0),
    ],
)
def test_the_first_failure_decides_but_2_and_78_win(statuses, index):
    exits = [exit_(i, s, time=float(i)) for i, s in enumerate(statuses)]
    found = cause(exits)
    assert (found and found.index) == index


def test_first_is_by_time_not_by_place():
    assert cause([exit_(0, 1, time=2.0), exit_(1, -9, time=1.0)]) == exit_(1, -9, time=1.0)


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (-9, 75, "process 3 was killed by SIGKILL"),
        (2, 2, "process 3 ended with exit code 2 (wrong usage, config or data)"),
        (1, 1, "process 3 ended with exit code 1 (a crash)"),
        (-40, 75, "process 3 was killed by signal 40"),
    ],
)
def test_what_a_status_means(status, code, text):
    assert exit_(3, status, 0.0).code == code
    assert str(exit_(3, status, 0.0)) == text


def test_a_told_exit_fits_in_a_line_that_is_read_whole():
    for letter in ("x", "\x01", "\U0001f600", "\ud800"):
        line = Exit(0.0, 3, 2, (letter * 70_000,) * 20).line
        assert len(line) < 1 << 16
        found = exits.told(line)
        assert found is not None and (found.status, len(found.tail)) == (2, 20)


@pytest.mark.parametrize(
    "said",
    ["", "3", "[1, 2, 3]", "[Infinity, 0, [], false]", "[0, 0, 3, false]", "[" * 60_000, "[0, 2,"],
)
def test_a_torn_line_tells_nothing(said):
    assert exits.told(f"\x1elaunch-exit {said}\n".encode()) is None
