"""Two real processes under the launcher: they agree, die together, stop together, start again."""

import fcntl
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from bench import runs
from jaxlm import workdir as workdirs
from tests.launch.watch import is_gone, until

pytestmark = pytest.mark.system

AT_ONCE_S = 30.0
"""The launcher kills after 2 s; the rest is for a busy machine. A lost process is only missed by
the others after 60 s."""


@pytest.fixture(scope="module")
def two(config, tmp_path_factory) -> Path:
    """Work directory of an uninterrupted run of two processes."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    code, output = runs.finish(runs.launch(config, workdir), workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


def test_two_processes_are_as_good_as_one(tmp_path, config, two):
    code, output = runs.finish(runs.train(config, tmp_path), tmp_path / "log", devices=2)
    assert code == 0, output
    assert [s.processes for s in workdirs.history(two)] == [2]
    assert [s.devices for s in workdirs.history(tmp_path)] == [2]
    one, other = runs.losses(tmp_path), runs.losses(two)
    assert one.keys() == other.keys()
    np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=0, atol=2e-5)
    runs.assert_close(runs.state(tmp_path), runs.state(two), atol=1e-6)


SHORT = ("train.end=40 steps", "checkpoint.every=10 steps")


@pytest.fixture(scope="module")
def four(config, tmp_path_factory) -> Path:
    """Work directory of an uninterrupted `SHORT` run of four processes."""
    workdir = tmp_path_factory.mktemp("four") / "run"
    command = runs.launch(config, workdir, *SHORT, processes=4)
    code, output = runs.finish(command, workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


@pytest.mark.parametrize(
    ("processes", "overrides", "whole"), [(2, (), "two"), (4, SHORT, "four")], ids=["2", "4"]
)
def test_one_killed(tmp_path, config, processes, overrides, whole, request):
    log = tmp_path / "log"
    command = runs.launch(config, tmp_path, runs.SLOWLY, *overrides, processes=processes)
    with runs.running(command, log) as launcher:
        runs.wait_until(lambda: len(runs.committed(tmp_path)) >= 2, launcher)
        pids = runs.processes(launcher)
        assert sorted(pids) == list(range(processes))
        os.kill(pids.pop(1), signal.SIGKILL)
        for pid in pids.values():
            until(lambda pid=pid: is_gone(pid), AT_ONCE_S)
        assert launcher.wait(runs.PATIENCE_S) == 0
    said = re.findall(r"^launch: .*", log.read_text(), re.M)
    assert said[0].startswith("launch: process 1 was killed by SIGKILL")
    assert sum("starting again in" in line for line in said) == 1
    first, second = workdirs.history(tmp_path)
    assert first.step == 0
    assert second.step in runs.committed(tmp_path)[1:]
    states = [
        runs.state(w, runs.committed(w)[-1]) for w in (tmp_path, request.getfixturevalue(whole))
    ]
    runs.assert_same(*states)


LOST = (
    r"jaxlm train: the run has lost a process; process {} \(.+\) has not been heard of for \d+ s; "
    r"it was at step \d+ in (data|step|save|evaluate)"
)


def test_one_of_two_stopped(tmp_path, config, two):
    """The other names it and ends; the launcher ends both, and starts again."""
    log = tmp_path / "log"
    command = runs.launch(config, tmp_path, runs.SLOWLY, "watch.heartbeat_seconds=10")
    with runs.running(command, log) as launcher:
        runs.wait_until(lambda: len(runs.committed(tmp_path)) >= 1, launcher)
        os.kill(runs.processes(launcher)[1], signal.SIGSTOP)
        assert launcher.wait(runs.PATIENCE_S) == 0
    output = log.read_text()
    assert re.search(LOST.format(1), output)
    said = re.findall(r"^launch: .*", output, re.M)
    assert said[0].startswith("launch: process 0 ended with exit code 75 (start me again)")
    assert "process 1 was killed by SIGKILL" in said[1]
    assert sum("starting again in" in line for line in said) == 1
    stacks = "".join(p.read_text() for p in (tmp_path / "logs").glob("stacks-0-*.txt"))
    assert "the run has lost a process" in stacks and "jaxlm/train.py" in stacks
    assert workdirs.history(tmp_path)[1].step >= runs.SAVE_EVERY
    runs.assert_same(runs.state(tmp_path), runs.state(two))


def test_the_coordinator_stopped(tmp_path, config):
    """The others see for themselves that it is silent."""
    log = tmp_path / "log"
    longer = ("train.end=1000 steps", "data.max_epochs=100")
    command = runs.launch(config, tmp_path, runs.SLOWLY, "watch.heartbeat_seconds=10", *longer)
    with runs.running(command, log) as launcher:
        runs.wait_until(runs.says(log, "step     12/"), launcher)
        time.sleep(3)  # what the others have heard of it may be so old: of its compile
        os.kill(runs.processes(launcher)[0], signal.SIGSTOP)
        runs.wait_until(lambda: re.search(LOST.format(0), log.read_text()) is not None, launcher)


def test_one_that_fails_alone_keeps_its_exit_code(tmp_path, config):
    """The other cannot know of the directory in use, and is told."""
    workdir, place = tmp_path / "run", runs.apart()
    workdir.mkdir()
    command = [*runs.train(config, workdir), *place]
    with (
        (workdir / "lock").open("a") as file,
        runs.running([*command, "--process=0"], tmp_path / "0.log") as zero,
        runs.running([*command, "--process=1"], tmp_path / "1.log") as one,
    ):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert (zero.wait(runs.PATIENCE_S), one.wait(runs.PATIENCE_S)) == (78, 75)
    assert re.search(
        r"process 0 \(.+\) has failed: .+ is training there", (tmp_path / "1.log").read_text()
    )


def test_one_that_dies_where_no_launcher_sees_it(tmp_path, config):
    """As on another host: the survivor names it, and asks for a new start."""
    command = [*runs.train(config, tmp_path / "run", runs.SLOWLY, "watch.heartbeat_seconds=8")]
    log, place = tmp_path / "0.log", runs.apart()
    with (
        runs.running([*command, *place, "--process=0"], log) as zero,
        runs.running([*command, *place, "--process=1"], tmp_path / "1.log") as one,
    ):
        runs.kill_when(one, runs.says(log, "step     12/"))
        # On a busy machine JAX may abort while the others are being told: that counts as 75 too.
        assert zero.wait(runs.PATIENCE_S) in (75, -signal.SIGABRT)
    stacks = "".join(p.read_text() for p in (tmp_path / "run" / "logs").glob("stacks-0-*.txt"))
    assert re.search(r"process 1 \(.+\) has not been heard of for", stacks)


def test_one_that_never_comes(tmp_path, config):
    command = runs.train(config, tmp_path / "run", "watch.barrier_minutes=0.05")
    code, output = runs.finish([*command, *runs.apart(), "--process=0"], tmp_path / "log")
    assert code == 75
    assert "1 of 2 processes did not come within 3 s: 1. Here are: 0" in output


def test_the_launcher_asked_to_stop(tmp_path, config, two):
    log = tmp_path / "log"
    with runs.running(runs.launch(config, tmp_path, runs.SLOWLY), log) as launcher:
        runs.wait_until(lambda: len(runs.committed(tmp_path)) >= 1, launcher)
        launcher.terminate()
        assert launcher.wait(runs.PATIENCE_S) == 75
    status = workdirs.status(tmp_path)
    assert status["state"] == "stopped"
    assert status["step"] == runs.committed(tmp_path)[-1] < runs.STEPS
    assert "launch: stopped as asked; the same command goes on from there" in log.read_text()
    assert "ended with exit code" not in log.read_text()  # it is no failure
    assert "killed" not in log.read_text()  # both ended by themselves
    code, output = runs.finish(runs.launch(config, tmp_path), tmp_path / "second.log")
    assert code == 0, output
    assert f"resuming at step {status['step']}" in output
    runs.assert_same(runs.state(tmp_path), runs.state(two))


def test_saves_by_the_clock_are_agreed(tmp_path, config, two):
    overrides = ("checkpoint.every=None", "checkpoint.every_minutes=0.001")
    command = runs.launch(config, tmp_path, *overrides)
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 0, output
    assert len(runs.committed(tmp_path)) >= 3
    assert not runs.unfinished(tmp_path)
    runs.assert_same(runs.state(tmp_path), runs.state(two))


def test_no_process_outlives_a_killed_launcher(tmp_path, config):
    log = tmp_path / "log"
    with runs.running(runs.launch(config, tmp_path), log) as launcher:
        runs.wait_until(runs.says(log, "compiling"), launcher)
        pids = runs.processes(launcher)
        assert len(pids) == 2
        launcher.kill()
        for pid in pids.values():
            until(lambda pid=pid: is_gone(pid), AT_ONCE_S)


def test_wrong_usage_is_not_restarted(tmp_path, config):
    command = runs.launch(config, tmp_path, "optim.lrr=1")
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 2
    assert "config.optim.lrr: unknown field; did you mean lr?" in output
    assert "starting again" not in output


def test_a_directory_in_use_is_not_restarted(tmp_path, config):
    start = time.monotonic()
    with (tmp_path / "lock").open("a") as file:
        file.write("12345")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        command = [*runs.launch(config, tmp_path)[:-1], "--processes=1"]
        code, output = runs.finish(command, tmp_path / "log")
    assert code == 78
    assert f"jaxlm train: --workdir={tmp_path}: pid 12345 is training there" in output
    assert "starting again" not in output
    assert time.monotonic() - start < 60
