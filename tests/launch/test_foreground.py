"""Launchers that stay: one for each work directory, looked at and stopped from elsewhere."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import foreground
from launch.job import Job
from launch.local import main
from launch.process import Spec
from tests.launch.watch import until, until_text

PROGRAM = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
try:
    print("up")
    while True: time.sleep(0.01)
finally:
    time.sleep(0.3)
    pathlib.Path(sys.argv[1], "saved").touch()
"""
LAUNCHER = """
import sys, pathlib
from launch import foreground
from launch.job import Job
from launch.process import Spec
logs = pathlib.Path(sys.argv[2], "logs")
spec = Spec(0, (sys.executable, "-c", sys.argv[1], sys.argv[2]), logs / "process-0.log")
sys.exit(foreground.run(Job(sys.argv[2], logs, lambda: [spec])))
"""


@pytest.fixture
def launcher(tmp_path) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-c", LAUNCHER, PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until_text(tmp_path / "logs/process-0.log", "up\n")
        yield process
        process.kill()


def test_it_is_found_and_stopped_once_all_have_saved(tmp_path, launcher, capfd):
    assert main(["logs", f"--workdir={tmp_path}", "--lines=1"]) == 0
    assert capfd.readouterr().out == "up\n"
    main(["status", f"--workdir={tmp_path}"])
    here = f"a launcher, process {launcher.pid} on {socket.gethostname()}, runs it"
    assert f"{tmp_path}: {here}\n" in capfd.readouterr().out
    assert main(["stop", f"--workdir={tmp_path}"]) == 0
    assert (tmp_path / "saved").exists() and launcher.wait(10) == 75
    assert "stopped; the same command goes on from there" in capfd.readouterr().err
    assert main(["stop", f"--workdir={tmp_path}"]) == 2
    assert f"{tmp_path}: no launcher runs it, by {tmp_path}/logs/" in capfd.readouterr().err


def test_a_work_directory_has_one(tmp_path, launcher):
    spec = Spec(0, ("true",), tmp_path / "logs/process-0.log")
    job = Job(str(tmp_path), tmp_path / "logs", lambda: [spec])
    with pytest.raises(ValueError, match=f"process {launcher.pid} on .* is running this already"):
        foreground.run(job)
    launcher.kill()
    launcher.wait()
    assert foreground.run(job) == 0  # however it ended


def test_one_on_another_host_is_left_to_it(tmp_path, launcher, capfd):
    lock = tmp_path / "logs" / foreground.LOCK
    lock.write_text(json.dumps([os.getpid(), "elsewhere"]))
    assert main(["stop", f"--workdir={tmp_path}"]) == 2
    assert "on elsewhere, runs it; stop it there" in capfd.readouterr().err
    assert launcher.poll() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '["a", 1]', "3", '["1", 2, 3]'])
def test_a_lock_without_a_name_is_one(tmp_path, launcher, text, capfd):
    (tmp_path / "logs" / foreground.LOCK).write_text(text)
    main(["status", f"--workdir={tmp_path}"])
    assert "a launcher, process 0 on ?, runs it" in capfd.readouterr().out
    assert main(["stop", f"--workdir={tmp_path}"]) == 2
    assert launcher.poll() is None


def test_the_logs_of_nothing(tmp_path, capfd):
    assert main(["logs", f"--workdir={tmp_path}", "--process=7"]) == 2
    assert "process-7.log: is not there; has the job started" in capfd.readouterr().err


def test_logs_are_followed(tmp_path, launcher):
    command = [sys.executable, "-m", "launch", "local", "logs", f"--workdir={tmp_path}"]
    root = Path(__file__).parents[2]
    with (tmp_path / "seen").open("wb") as out:
        follower = subprocess.Popen([*command, "--follow"], stdout=out, cwd=root)
    until_text(tmp_path / "seen", "up\n")
    with (tmp_path / "logs/process-0.log").open("a") as log:
        log.write("more\n")
    until_text(tmp_path / "seen", "more\n")
    follower.send_signal(signal.SIGINT)
    until(lambda: follower.poll() is not None, 20)


@pytest.mark.parametrize("action", ["status", "stop"])
def test_a_lock_that_cannot_be_read(tmp_path, action, capfd):
    (tmp_path / "logs" / foreground.LOCK).mkdir(parents=True)
    assert main([action, f"--workdir={tmp_path}"]) == 78
    assert f"{foreground.LOCK}: Is a directory" in capfd.readouterr().err


def test_asked_twice_to_stop_it_still_saves(tmp_path, launcher):
    """A second signal, some time after the first, would kill."""
    launcher.send_signal(signal.SIGSTOP)  # as long as it takes to save
    root = Path(__file__).parents[2]

    def stop() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "launch", "local", "stop", f"--workdir={tmp_path}"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root)

    with stop() as first:
        until_text(tmp_path / "logs" / foreground.LOCK, "\nasked to stop\n")
        first.send_signal(signal.SIGINT)
        assert "Traceback" not in first.communicate(timeout=20)[1]
        assert first.returncode == 130
    with stop() as second:
        assert second.stderr is not None and "Ctrl-C only ends" in second.stderr.readline()
        launcher.send_signal(signal.SIGCONT)
        assert second.wait(20) == 0
    assert (tmp_path / "saved").exists() and launcher.wait(10) == 75
