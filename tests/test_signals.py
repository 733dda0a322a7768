"""What a process is asked for: in real processes, since it is about how they end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from jaxlm.activity import Activity, Record
from jaxlm.safety import WatchConfig
from jaxlm.schedule import Cost
from jaxlm.signals import AHEAD, SAME_S, URGENT, Haste, Stop, stop_signals

PROGRAM = """
import hashlib, sys, time
from jaxlm import signals
from jaxlm.safety import WatchConfig
from jaxlm.signals import stop_signals
signals.SAME_S = float(sys.argv[3])
with stop_signals(WatchConfig(grace_seconds=float(sys.argv[2]))) as stop:
    stop.steps_run = sys.argv[1] == "steps"
    print("ready", flush=True)
    while not stop.is_set():
        time.sleep(0.01)
    print("asked", flush=True)
    # As a compile: Python's own handlers would not run for long.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@contextlib.contextmanager
def start(
    steps_run: bool, grace_s: float, *before: str, same_s: float = SAME_S
) -> Iterator[subprocess.Popen[str]]:
    words = ["steps" if steps_run else "none", str(grace_s), str(same_s)]
    process = subprocess.Popen(
        [*before, sys.executable, "-c", PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"


@pytest.mark.parametrize("number", [*URGENT, *AHEAD])
def test_before_the_first_step_it_ends_at_once(number):
    with start(steps_run=False, grace_s=60) as process:
        process.send_signal(number)
        assert process.wait(60) == 75
        err = process.communicate()[1]
    why = f"{number.name} before the first step: there is nothing to save"
    assert err == f"jaxlm train: {why}; exit code 75\n"


def test_the_second_ends_it_at_once():
    with start(steps_run=True, grace_s=60) as process:
        process.terminate()
        asked(process)
        time.sleep(SAME_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 75
        err = process.communicate()[1].splitlines()
    assert err == [
        "SIGTERM: saving after 4 steps at most, within 60 s; a second one ends at once",
        "jaxlm train: SIGINT for the second time: ending without saving; exit code 75",
    ]


def test_what_follows_at_once_is_the_same_request():
    """SIGTERM from a manager and from the launcher, SIGTERM and SIGHUP of a session's end."""
    with start(steps_run=True, grace_s=2.0, same_s=60.0) as process:
        process.terminate()
        asked(process)
        process.terminate()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 75
        err = process.communicate()[1].splitlines()
    assert len(err) == 2 and "second time" not in err[1], err
    assert "not saved within 2 s of SIGTERM" in err[1]


def test_with_nohup_it_outlives_its_terminal():
    with start(True, 60, "nohup") as process:
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.readline().startswith("SIGTERM: saving")
        process.kill()
        assert process.communicate()[1] == ""


def test_the_time_is_up():
    with start(steps_run=True, grace_s=1.0) as process:
        process.terminate()
        assert process.wait(60) == 75
        err = process.communicate()[1].splitlines()
    assert err[1:] == [
        "jaxlm train: not saved within 1 s of SIGTERM: the checkpoint before is as it was; "
        "exit code 75"
    ]


def test_a_notice_and_then_the_signal_are_not_twice():
    ends: list[str] = []
    stop = Stop(ends.append)
    stop.steps_run = True
    for _ in range(3):
        stop.ask("the notice", 0.05)
    stop.ask("SIGTERM", 60.0, urgent=True)
    assert stop.is_set() and not ends
    deadline = time.monotonic() + 60
    while not ends:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ends[0].startswith("not saved within 0.05 s of the notice")
    stop.close()


def test_a_scheduler_that_signals_ahead_leaves_more_time():
    cfg, ends = WatchConfig(grace_seconds=0.01, notice_seconds=60), []
    with stop_signals(cfg) as stop:
        stop.steps_run, stop.end = True, ends.append
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while not stop.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.1)
        assert not ends
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


class Steps(Record):
    """Steps of a known length."""

    def __init__(self, seconds: float):
        super().__init__()
        self.seconds = seconds

    def spent(self) -> dict[Activity, float]:
        return {a: self.seconds * self.step * (a == Activity.STEP) for a in Activity}


def late(step_s: float, cost: Cost | None, steps: int = 4) -> list[str]:
    here = Steps(step_s)
    haste = Haste(WatchConfig(grace_seconds=30), steps, here)
    said = []
    for here.step in range(20):
        said.append(haste.look(cost))
    return [line for line in said if line]


def test_a_stop_that_would_come_too_late_is_said_once():
    (line,) = late(7.0, Cost(1.0, 4.0))
    assert line.startswith(
        "a stop would come too late: 4 steps of 7 s may be done before it saves, and a save of 5 s:"
        " 33 s of config.watch.grace_seconds=30. Set it to"
    )
    (line,) = late(20.0, None, steps=2)
    assert "2 steps of 20 s may be done before it saves, and no save was timed yet: 40 s" in line


def test_a_stop_in_time_is_nothing_to_say():
    assert late(7.0, Cost(0.5, 1.0)) == late(7.0, None) == late(12.0, Cost(1.0, 4.0), 2) == []
