"""The launcher on real processes: small Python programs in the place of `jaxlm train`."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jaxlm import rollcall
from launch import job as jobs
from launch.exits import Exit
from launch.job import Job, run
from launch.local import main, plan
from tests.launch.watch import is_gone, until, until_text

PRELUDE = """
import json, os, pathlib, signal, sys, time
workdir = pathlib.Path(sys.argv[1])
place = dict(a.split("=") for a in sys.argv[2:])
me = int(place.get("--process", 0))
def on_sigterm(code):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(code))
"""


def job(workdir: Path, code: str, processes: int = 2, max_restarts: int = 3) -> Job:
    program = (sys.executable, "-c", PRELUDE + code, str(workdir))
    logs = workdir / "logs"
    patience = {"max_restarts": max_restarts, "peer_grace_s": 5.0, "kill_grace_s": 0.3}
    return Job(str(workdir), logs, lambda: plan(program, logs, processes, 1234), **patience)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr(jobs, "_LONGEST_DELAY_S", 0.02)


def test_a_free_port_is_given_to_nobody_who_asks_for_any():
    port = jobs.free_port()
    with socket.socket() as s, pytest.raises(OSError, match="in use"):
        s.bind(("127.0.0.1", port))
    for host in ("127.0.0.1", None):  # but it is to be had by who asks for this one
        with rollcall.listen(host, port):
            pass


# ---- plan and output -----------------------------------------------------------------------------


def test_each_process_is_told_its_place(tmp_path):
    specs = plan(["train"], tmp_path, processes=2, port=1234)
    shared = ("train", "--coordinator=127.0.0.1:1234", "--bind=127.0.0.1", "--processes=2")
    assert [s.command for s in specs] == [(*shared, "--process=0"), (*shared, "--process=1")]
    assert [s.log.name for s in specs] == ["process-0.log", "process-1.log"]


def test_one_process_needs_no_coordinator(tmp_path):
    assert plan(["train"], tmp_path, processes=1, port=1234)[0].command == ("train",)


def test_output_of_process_0_is_as_it_is(tmp_path, capfd):
    assert run(job(tmp_path, "print('hello from', me)")) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["[1] hello from 1", "hello from 0"]
    assert err == ""
    assert (tmp_path / "logs/process-1.log").read_text().endswith("\nhello from 1\n")


# ---- failures ------------------------------------------------------------------------------------


def test_a_crash_ends_all_at_once_and_is_shown_first(tmp_path, capfd):
    code = """
on_sigterm(1)
if me == 1:
    time.sleep(0.3)
    raise RuntimeError("the cause")
time.sleep(60)
"""
    start = time.monotonic()
    assert run(job(tmp_path, code)) == 1
    assert time.monotonic() - start < 10
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == (
        "launch: process 1 ended with exit code 1 (a crash); "
        f"its log is {tmp_path}/logs/process-1.log"
    )
    assert "launch:   | RuntimeError: the cause" in lines
    assert lines[-1].endswith(" s: process 0 ended with exit code 1 (a crash)")


def test_a_peer_that_does_not_listen_is_killed(tmp_path, capfd):
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(0.3 if me else 60)\nsys.exit(2)"
    )
    start = time.monotonic()
    assert run(job(tmp_path, code)) == 2
    assert time.monotonic() - start < 10
    assert "process 0 was killed by SIGKILL" in capfd.readouterr().err


def test_peers_of_a_graceful_exit_may_finish(tmp_path):
    code = "on_sigterm(1)\ntime.sleep(0.5 * me)\n(workdir / f'saved{me}').touch()\nsys.exit(75)"
    assert run(job(tmp_path, code, max_restarts=0)) == 75
    assert (tmp_path / "saved1").exists()


def test_peers_of_a_graceful_exit_may_not_hang(tmp_path):
    waiting = replace(job(tmp_path, "time.sleep(60 * me)", max_restarts=0), peer_grace_s=0.3)
    start = time.monotonic()
    assert run(waiting) == 75  # not done: one of them never said so
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("code", [2, 78])
def test_2_and_78_win_over_75_and_are_never_restarted(tmp_path, code):
    program = (
        "print(file=(workdir / f'starts{me}').open('a'))\n"
        f"time.sleep(0.3 * me)\nsys.exit({code} if me else 75)"
    )
    assert run(job(tmp_path, program)) == code
    assert (tmp_path / "starts0").read_text() == "\n"


# ---- restarts ------------------------------------------------------------------------------------

ADVANCE = """
status = workdir / "status.json"
position = json.loads(status.read_text())["position"] if status.exists() else 0
if position == 40: sys.exit(0)
status.write_text(json.dumps({"position": position + 10}))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_restarts_go_on_while_the_position_advances(tmp_path, capfd):
    assert run(job(tmp_path, ADVANCE, processes=1, max_restarts=1)) == 0
    err = capfd.readouterr().err
    assert err.count("process 0 was killed by SIGKILL") == 4
    assert "starting again in 0 s, at position 40" in err


def test_one_process_of_two_killed_restarts_both(tmp_path):
    code = """
first = not (workdir / f"ran{me}").exists()
(workdir / f"ran{me}").touch()
if not first: sys.exit(0)
if me: os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
    start = time.monotonic()
    assert run(job(tmp_path, code)) == 0
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "status", [None, '{"position": 7}', "not JSON", '{"step": 1}', '{"position": Infinity}']
)
def test_gives_up_without_progress(tmp_path, capfd, status):
    if status:
        (tmp_path / "status.json").write_text(status)
    code = "print(file=(workdir / 'starts').open('a'))\nsys.exit(75)"
    assert run(job(tmp_path, code, processes=1, max_restarts=2)) == 75
    assert (tmp_path / "starts").read_text() == "\n" * 3
    at = "at position 7" if status and "7" in status else "no position reached yet"
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == f"launch: giving up after 2 restarts without progress, {at}"


def test_delays_double_up_to_a_limit(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(jobs, "_LONGEST_DELAY_S", 4.0)
    waits = []
    monkeypatch.setattr(jobs, "next_event", wait_without_waiting(waits))
    assert run(job(tmp_path, "sys.exit(75)", processes=1, max_restarts=4)) == 75
    assert [round(w) for w in waits] == [1, 2, 4, 4]


def test_no_number_of_restarts_is_too_large(tmp_path, monkeypatch):
    ends = [Exit(0.0, 0, 75, ())], False
    monkeypatch.setattr(jobs, "_attempt", lambda *_: ends)
    monkeypatch.setattr(jobs, "next_event", wait_without_waiting([]))
    assert run(job(tmp_path, "", processes=1, max_restarts=1100)) == 75


def wait_without_waiting(waits: list[float]):
    real = jobs.next_event

    def next_event(events, deadline):
        if deadline > time.monotonic() + 100:
            return real(events, deadline)
        waits.append(deadline - time.monotonic())
        return None

    return next_event


# ---- signals: the launcher as a process of its own -----------------------------------------------


@pytest.fixture
def launcher(tmp_path):
    """Starts a launcher over two processes, in a session of its own; ends it after the test."""
    started = []

    def start(code: str, *before: str, output: int = subprocess.PIPE) -> subprocess.Popen:
        source = "import sys; from pathlib import Path; from tests.launch.test_local import *; "
        source += "sys.exit(run(job(Path(sys.argv[1]), sys.argv[2])))"
        command = [*before, sys.executable, "-c", source, str(tmp_path), code]
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        started.append(process)
        for i in range(2):
            until_text(tmp_path / f"logs/process-{i}.log", "up\n")
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_is_passed_on_and_nothing_restarts(tmp_path, launcher, number):
    code = "on_sigterm(75)\ntry:\n print('up')\n time.sleep(60)\nfinally: print('saved')"
    process = launcher(code)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert b"starting again" not in out
    for i in range(2):
        assert (tmp_path / f"logs/process-{i}.log").read_text().endswith("up\nsaved\n")


def test_a_signal_ahead_of_an_end_is_passed_on_as_it_is(tmp_path, launcher):
    code = (
        "signal.signal(10, lambda *_: print('told'))\non_sigterm(75)\nprint('up')\n"
        "while True: time.sleep(0.01)"
    )
    process = launcher(code)
    process.send_signal(signal.SIGUSR1)
    for i in range(2):
        until_text(tmp_path / f"logs/process-{i}.log", "up\ntold\n")
    process.terminate()  # no second one: it is what was told of
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert b"killed" not in out and b"starting again" not in out


def test_the_second_signal_kills(launcher, tmp_path):
    code = (
        "signal.signal(15, lambda *_: print('saving'))\nprint('up')\nwhile True: time.sleep(0.01)"
    )
    process = launcher(code)
    process.send_signal(signal.SIGTERM)
    for i in range(2):
        until_text(tmp_path / f"logs/process-{i}.log", "saving\n")
    time.sleep(jobs._SAME_S)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert out.count(b"was killed by SIGKILL") == 2


def test_what_follows_at_once_is_the_same_request(tmp_path, launcher):
    """As SIGTERM and SIGHUP at the end of a session."""
    code = "on_sigterm(75)\ntry:\n print('up')\n time.sleep(60)\nfinally: time.sleep(1)"
    process = launcher(code)
    process.terminate()
    time.sleep(0.2)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert b"killed" not in out and b"stopped as asked" in out


def test_with_nohup_it_outlives_its_terminal(tmp_path, launcher):
    code = "print('up')\nwhile not (workdir / 'go').exists(): time.sleep(0.01)"
    process = launcher(code, "nohup")
    process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and b"launch:" not in out


def test_stopped_while_it_waits_to_start_again(tmp_path):
    code = "import sys; from launch.job import *; from pathlib import Path; w = Path(sys.argv[1]); "
    code += "spec = Spec(0, ('sh', '-c', 'exit 75'), w / 'log'); "
    code += "sys.exit(run(Job(str(w), w, lambda: [spec], max_restarts=9)))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "starting again in 2 s" in line:
                process.terminate()
                break
        said = process.stderr.read()
    assert process.returncode == 75
    assert said == "launch: stopped as asked; the same command goes on from there\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_no_process_outlives_a_killed_launcher(tmp_path, launcher):
    code = "(workdir / f'pid{me}').write_text(str(os.getpid()))\nprint('up')\ntime.sleep(60)"
    launcher(code).kill()
    for i in range(2):
        pid = int((tmp_path / f"pid{i}").read_text())
        until(lambda pid=pid: is_gone(pid))


@pytest.mark.parametrize("end", ["pipe", "pty", "disk"])
def test_a_run_goes_on_when_nobody_takes_its_output(tmp_path, launcher, end):
    """A reader that left, a terminal that hung up, a full disk."""
    code = (
        "print('up')\nwhile not (workdir / 'go').exists(): time.sleep(0.01)\n"
        "for _ in range(3): time.sleep(0.1); print('x' * 50_000)\nprint('end')"
    )
    if end == "disk":
        ours, theirs = None, os.open("/dev/full", os.O_WRONLY)
    else:
        ours, theirs = os.openpty() if end == "pty" else os.pipe()
    process = launcher(code, output=theirs)
    os.close(theirs)
    if ours is not None:
        os.close(ours)
    (tmp_path / "go").touch()
    assert process.wait(20) == 0
    for i in range(2):
        assert (tmp_path / f"logs/process-{i}.log").read_text().endswith("x\nend\n")


# ---- command line --------------------------------------------------------------------------------


def launch(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "launch", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_dry_run_prints_the_commands_and_makes_nothing(tmp_path):
    done = launch(
        "local",
        "--processes=2",
        f"--workdir={tmp_path}/new",
        "--config.x=1",
        "--dry-run",
    )
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first.startswith(
        f"{sys.executable} -m jaxlm train --workdir={tmp_path}/new --config.x=1 --coord"
    )
    assert first.removesuffix("0") == second.removesuffix("1")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "launch: '' is not a launcher; use one of: gke, host, local, ray, slurm"),
        (["slum"], "launch: 'slum' is not a launcher; use one of: gke, host, local, ray, slurm"),
        (["local"], "the following arguments are required: --workdir"),
        (["local", "--workdir=w", "--processes=0"], "'0' is not a whole number from 1 up"),
        (["local", "--workdir=w", "--process=0"], "--process differs from process to process"),
    ],
)
def test_wrong_usage_is_2(arguments, message):
    done = launch(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    "argument",
    [
        "--workdir=s3://key:hush@bucket/run",
        "--workdir=s3://bucket/run?X-Amz-Signature=hush",
        "--config.data.manifest=s3://bucket/manifest.json?sig=hush",
        "--config.data.manifest='s3://key:hush@bucket/manifest.json'",
        "--init-from=gs://bucket/run#hush",
    ],
)
def test_a_url_with_a_secret_is_refused_before_it_is_written(
    tmp_path, monkeypatch, capfd, argument, dry
):
    monkeypatch.chdir(tmp_path)
    workdir = [] if argument.startswith("--workdir") else ["--workdir=run"]
    with pytest.raises(SystemExit) as end:
        main([*workdir, argument, *dry])
    out, err = capfd.readouterr()
    assert end.value.code == 2 and "may be secret" in err
    assert "hush" not in out + err and not list(tmp_path.iterdir())


def test_a_plain_url_is_taken(capfd):
    place = ["--workdir=s3://bucket/run", "--config.data.manifest=gs://bucket/data/manifest.json"]
    assert main([*place, "--dry-run"]) == 0
    assert " ".join(place) in capfd.readouterr().out


def test_too_many_files_are_no_fault_of_the_workdir(tmp_path):
    lines = f"ulimit -n 40; {sys.executable} -m launch local --workdir={tmp_path} --processes=30"
    done = subprocess.run(["sh", "-c", lines], capture_output=True, text=True)
    assert done.returncode == 78
    said = f"launch: {tmp_path}: Too many open files; raise `ulimit -n`"
    assert done.stderr.splitlines()[-1].startswith(said)


def test_a_workdir_that_cannot_be_made_is_78(tmp_path, capfd):
    (tmp_path / "file").touch()
    assert main([f"--workdir={tmp_path}/file/run"]) == 78
    assert capfd.readouterr().err == (
        f"launch: {tmp_path}/file/run/logs: Not a directory; "
        "choose a --workdir that can be written\n"
    )
