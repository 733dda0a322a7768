"""SIGTERM: the run saves, says 75, and goes on from there; asked twice, it ends at once."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bench import runs
from jaxlm import goodput, ledger, status
from jaxlm import workdir as workdirs
from jaxlm.signals import SAME_S

pytestmark = pytest.mark.system


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_asked_to_stop(tmp_path, config, whole, number):
    log = tmp_path / "log"
    command = runs.train(config, tmp_path, runs.SLOWLY, "checkpoint.every=None")
    with runs.running(command, log) as process:
        runs.wait_until(runs.says(log, "step     12/"), process)
        process.send_signal(number)
        assert process.wait(runs.PATIENCE_S) == 75
    (step,) = runs.committed(tmp_path)  # saved because of the signal alone
    assert 12 <= step < runs.STEPS
    assert f"stopped as asked: step {step} is saved; the same command goes on" in log.read_text()
    said = workdirs.status(tmp_path)
    assert (said["state"], said["step"], said["position"]) == ("stopped", step, 4 * step)
    assert (status.of(tmp_path).state, status.of(tmp_path).step) == ("stopped", step)
    code, output = runs.finish(command, tmp_path / "second.log")
    assert code == 0, output
    assert f"resuming at step {step}" in output
    runs.assert_same(runs.state(tmp_path), runs.state(whole))
    assert runs.time_spent(tmp_path).lost_steps == 0


def test_all_processes_and_their_launcher_at_once(tmp_path, config):
    """As `systemctl stop`, or a machine that shuts down: each of ours is asked twice, and more."""
    log = tmp_path / "log"
    command = runs.launch(config, tmp_path, runs.SLOWLY, "checkpoint.every=None")
    with runs.running(command, log) as launcher:
        runs.wait_until(runs.says(log, "step     12/"), launcher)
        pids = [launcher.pid, *runs.processes(launcher).values()]
        assert len(pids) == 3
        for number in (signal.SIGTERM, signal.SIGHUP):
            for pid in pids:
                os.kill(pid, number)
        assert launcher.wait(runs.PATIENCE_S) == 75
    (step,) = runs.committed(tmp_path)
    said = log.read_text()
    assert f"stopped as asked: step {step} is saved; the same command goes on" in said
    assert "second time" not in said and "killed" not in said


ASKED_AT = """
import os, signal, sys, time
from jaxlm import cli, train

step = train.Checks.step
def asked(self, given, batch, controls, before):
    if before == 4 * 20:  # what it hands over to the 21st step is made
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
    return step(self, given, batch, controls, before)
train.Checks.step = asked
sys.exit(cli.main(sys.argv[1:]))
"""


def test_one_process_does_what_it_has_handed_over_and_saves(tmp_path, config, whole):
    """No step more; none is lost, and none done twice."""
    command = runs.train(config, tmp_path, "checkpoint.every=None", "watch.grace_seconds=60")
    asked = [sys.executable, "-c", ASKED_AT, *command[3:]]
    code, output = runs.finish(asked, tmp_path / "log")
    assert code == 75 and "SIGTERM: saving after 2 steps at most, within 60 s" in output, output
    assert runs.committed(tmp_path) == [21]
    code, output = runs.finish(command, tmp_path / "second.log")
    assert code == 0 and "resuming at step 21" in output, output
    runs.assert_same(runs.state(tmp_path), runs.state(whole))
    assert runs.losses(whole) | runs.losses(tmp_path) == runs.losses(whole)
    assert runs.time_spent(tmp_path).lost_steps == 0


def test_a_stop_that_would_come_too_late_is_told(tmp_path, config):
    short = runs.train(config, tmp_path, "train.end=12 steps", "watch.grace_seconds=0.0001")
    code, output = runs.finish(short, tmp_path / "log")
    assert code == 0 and output.count("a stop would come too late: 2 steps of") == 1, output


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("end", ["pty", "disk"])
def test_nobody_takes_its_output(tmp_path, config, end, launched):
    """A terminal that hangs up, a log on a full disk: the run goes on to its end."""
    command = [*runs.train(config, tmp_path), "--config.train.end=12 steps"]
    if launched:
        command = runs.launch(config, tmp_path, "train.end=12 steps", processes=1)
    ours, theirs = os.openpty() if end == "pty" else (None, os.open("/dev/full", os.O_WRONLY))
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env=runs.environment(1), start_new_session=True
    )
    os.close(theirs)
    try:
        if ours is not None:
            shown = b""
            while b"training from" not in shown:
                shown += os.read(ours, 4096)
            os.close(ours)
        assert process.wait(runs.PATIENCE_S) == 0
    finally:
        process.kill()
    assert status.of(tmp_path).state == "done" and runs.committed(tmp_path) == [12]


def test_asked_before_the_first_step(tmp_path, config):
    """While it compiles, when Python's own handlers would have to wait."""
    log = tmp_path / "log"
    with runs.running(runs.train(config, tmp_path), log) as process:
        runs.wait_until(runs.says(log, "compiling"), process)
        process.terminate()
        assert process.wait(runs.PATIENCE_S) == 75
    why = "SIGTERM before the first step: there is nothing to save"
    assert why in log.read_text()
    assert runs.committed(tmp_path) == []
    (attempt,) = goodput.of(ledger.read(tmp_path)).attempts
    assert (attempt.end, attempt.last_step) == (why, 0)


@pytest.mark.parametrize("twice", [True, False])
def test_a_save_that_does_not_end(tmp_path, config, whole, twice):
    """The store is gone: it ends by the second signal, or when its time is up."""
    log, full = tmp_path / "log", tmp_path / "checkpoints" / "full"
    grace_s = 60 if twice else 2
    command = runs.train(config, tmp_path, runs.SLOWLY, f"watch.grace_seconds={grace_s}")
    with runs.running(command, log) as process:
        runs.wait_until(lambda: runs.SAVE_EVERY in runs.committed(tmp_path), process)
        full.rename(tmp_path / "kept")
        full.touch()
        process.terminate()
        if twice:
            runs.wait_until(runs.says(log, "could not be saved"), process)
            time.sleep(SAME_S)
            process.terminate()
        assert process.wait(runs.PATIENCE_S) == 75
    why = "SIGTERM for the second time" if twice else "not saved within 2 s of SIGTERM"
    assert f"jaxlm train: {why}" in log.read_text()
    if twice:
        return
    full.unlink()
    (tmp_path / "kept").rename(full)
    code, output = runs.finish(runs.train(config, tmp_path), tmp_path / "second.log")
    assert code == 0, output
    assert f"resuming at step {runs.SAVE_EVERY}" in output
    runs.assert_same(runs.state(tmp_path), runs.state(whole))
