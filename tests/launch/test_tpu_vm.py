"""The launcher of TPU VMs, as a command: runs, their ends, and what is seen of them meanwhile."""

import json
import os
import shlex
import signal
import subprocess
import time

import pytest

from launch import tpu_vm
from launch.tpu_vm import ACTIONS
from tests.launch import cloud as clouds
from tests.launch import flags, tpu_vms
from tests.launch.cloud import (
    CONFIG,
    IMAGE,
    NAME,
    QUEUE,
    RUN,
    URL,
    WORKDIR,
    ZONE,
    launch,
    look_at,
    said,
    start,
)
from tests.launch.watch import until, until_text


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with clouds.made(tmp_path, monkeypatch) as found:
        yield found


# ---- a run ---------------------------------------------------------------------------------------


def test_the_whole_life_of_a_run(cloud):
    cloud.train("print('hello from', me, flush=True); end(0)")
    odd = ['--config.a=it\'s "$HOME" `id` \\ *  x', "--config.b=%TPU%\ttab"]
    code, out, err = launch(cloud, *RUN, "--spot", "--", *odd)
    assert code == 0, err
    assert sorted(line for line in out.splitlines() if "hello" in line) == [
        "hello from 0",
        "hello from 1",
    ]
    assert [line.removeprefix("launch: ") for line in err.splitlines()] == [
        f"{NAME}: not there",
        f"{NAME}: in the queue for v6e-16",
        *(f"{NAME}: {state}" for state in QUEUE),
        f"deleting {NAME} and its machines",
        f"{NAME} is deleted",
    ]
    assert cloud.verbs == ["create", "delete"] and cloud.is_empty
    for worker in (0, 1):
        made = json.loads((cloud.host(worker) / "created.json").read_text())
        assert made["image"] == IMAGE.partition("=")[2] and "--privileged" in made["flags"]
        command = ["-m", "launch", "host", "--place=tpu-vm", "--once", "--tell", WORKDIR, "--"]
        grace = "--config.watch.grace_seconds=120"
        assert made["command"] == ["python", *command, CONFIG, grace, *odd]
        assert json.loads((cloud.host(worker) / "start-1").read_text()) == made["command"][1:]
        assert (cloud.host(worker) / "token").read_text() == "ya29.x\n"


def test_several_slices_run_at_once_and_one_failure_is_told(cloud):
    cloud.train("""
    other = host.with_name(host.name[:-3] + ("1.0" if "-0." in host.name else "0.0"))
    while not (other / "start-1").exists():
        time.sleep(0.02)
    end(2 if "-1.1" in host.name else 0, "no such config")
    """)
    code, _, err = launch(cloud, *RUN, "--slices=2")
    assert code == 2 and "ended with exit code 2" in err and "  | no such config" in err
    create = next(call for call in cloud.calls if call[3] == "create")
    assert {"--node-count=2", f"--node-prefix={NAME}"} < set(create)
    assert cloud.verbs == ["create", "delete"] and cloud.is_empty


def test_an_attempt_that_fails_is_repeated_on_the_same_machines(cloud):
    cloud.train("end(75, 'a peer was lost') if starts == 1 else end(0)")
    code, _, err = launch(cloud, *RUN)
    assert code == 0 and "starting again" in err
    assert cloud.verbs == ["create", "delete"] and (cloud.host(1) / "start-2").exists()


def test_without_progress_it_gives_up_and_deletes(cloud):
    cloud.train("end(75)")
    code, _, err = launch(cloud, *RUN, "--max-restarts=1")
    assert code == 75 and "giving up after 1 restarts without progress" in err
    assert cloud.is_empty and not (cloud.host(0) / "start-3").exists()


def test_machines_that_are_taken_away_are_asked_for_again_and_do_not_count(cloud):
    cloud.lives(QUEUE, QUEUE, QUEUE)
    cloud.train("""
    (host / "runs").touch()
    if starts == 3:
        end(0)
    time.sleep(60)
    """)
    process = start(cloud, *RUN, "--spot", "--max-restarts=1")
    for _ in range(2):
        until(lambda: all((cloud.host(i) / "runs").exists() for i in (0, 1)))
        for worker in (0, 1):
            (cloud.host(worker) / "runs").unlink()
            os.kill(int((cloud.host(worker) / "pid").read_text()), signal.SIGKILL)
        cloud.becomes("SUSPENDED")
    assert process.wait(60) == 0, said(cloud)
    assert cloud.verbs == ["create", "delete"] * 3 and cloud.is_empty
    assert said(cloud).count(f"{NAME}: SUSPENDED") == 2


def test_a_lost_connection_does_not_disturb_the_run(cloud):
    cloud.train("""
    while not (shared / "go").exists():
        time.sleep(0.02)
    end(0)
    """)
    process = start(cloud, *RUN)
    until(lambda: (cloud.host(1) / "start-1").exists())
    (cloud.host(1) / "cut").touch()
    until(lambda: not (cloud.host(1) / "cut").exists())
    (cloud.place / "go").touch()
    assert process.wait(60) == 0, said(cloud)
    assert not (cloud.host(1) / "start-2").exists() and "starting again" not in said(cloud)


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_lets_all_save_and_deletes(cloud, number):
    cloud.train("until_stopped()")
    process = start(cloud, *RUN)
    until(lambda: all((cloud.host(i) / "start-1").exists() for i in (0, 1)))
    process.send_signal(number)
    assert process.wait(60) == 75
    assert "stopped as asked; the same command goes on from there" in said(cloud)
    assert cloud.is_empty and said(cloud).splitlines()[-1] == f"launch: {NAME} is deleted"


def test_a_second_signal_does_not_wait_for_saves_and_deletes(cloud):
    cloud.train("""
    while True:
        time.sleep(0.02)
        if stopped:
            (host / "saves").touch()
    """)
    process = start(cloud, *RUN)
    until(lambda: all((cloud.host(i) / "start-1").exists() for i in (0, 1)))
    process.send_signal(signal.SIGINT)
    until(lambda: all((cloud.host(i) / "saves").exists() for i in (0, 1)))
    time.sleep(2.1)  # sooner it is the same request
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 75 and cloud.is_empty, said(cloud)


def test_kept_machines_are_named(cloud):
    cloud.train("end(0)")
    code, _, err = launch(cloud, *RUN, "--keep")
    assert code == 0 and not cloud.is_empty and cloud.verbs == ["create"]
    assert f"{NAME} is kept; to delete it: gcloud compute tpus queued-resources delete" in err


def test_a_stop_in_the_queue_deletes_too(cloud):
    cloud.lives(["WAITING_FOR_RESOURCES"])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", "WAITING_FOR_RESOURCES")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 75 and cloud.is_empty


def test_stop_by_another_command(cloud):
    cloud.train("until_stopped()")
    process = start(cloud, *RUN)
    until(lambda: all((cloud.host(i) / "start-1").exists() for i in (0, 1)))
    done = look_at("stop", WORKDIR, ZONE)
    assert done.returncode == 0, done.stderr
    assert process.wait(60) == 75 and cloud.is_empty
    assert "stopped as asked" in said(cloud) and not (cloud.host(0) / "start-2").exists()


def test_a_deletion_that_fails_is_said_loudly(cloud):
    cloud.train("end(0)")
    cloud.refuses({"of": "delete", "err": "ERROR: (gcloud) INTERNAL: not now"})
    code, _, err = launch(cloud, *RUN)
    assert code == 0 and f"{NAME} MAY STILL BE THERE, AND COSTS MONEY; delete it with:" in err
    line = shlex.split(err.splitlines()[-1].removeprefix("launch: "))
    assert line[:6] == ["gcloud", "compute", "tpus", "queued-resources", "delete", NAME]
    assert list(flags.problems(line)) == []


def test_a_launcher_that_was_killed_finds_its_machines(cloud):
    cloud.train("until_stopped() if starts == 1 else end(0)")
    process = start(cloud, *RUN)
    until(lambda: all((cloud.host(i) / "start-1").exists() for i in (0, 1)))
    process.kill()
    process.wait()
    pid = int((cloud.host(0) / "pid").read_text())
    os.kill(pid, 0)  # the run goes on
    code, _, err = launch(cloud, *RUN)
    assert code == 0, err
    assert cloud.verbs == ["create", "delete"] and (cloud.host(0) / "start-2").exists()


# ---- looking -------------------------------------------------------------------------------------


def test_status_says_how_it_stands(cloud):
    cloud.holds("ACTIVE", "--slices=2")
    done = look_at("status", WORKDIR, ZONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{NAME}: ACTIVE, 2 x v6e-16",
        f"{NAME}-0: READY, HEALTHY, 2 workers",
        f"{NAME}-1: READY, HEALTHY, 2 workers",
        f"where the run is: jaxlm status --workdir={URL}",
    ]
    cloud.becomes("WAITING_FOR_RESOURCES")
    assert f"{NAME}-1: not there" in look_at("status", f"--name={NAME}", ZONE).stdout


def test_logs_are_those_of_a_process(cloud):
    cloud.train("until_stopped()")
    cloud.holds("ACTIVE", "--slices=2")
    look_at("logs", WORKDIR, ZONE, "--process=3", "--lines=5", "--follow", "--ssh=--internal-ip")
    line = cloud.calls[-1]
    assert line[2:5] == ["tpu-vm", "ssh", f"{NAME}-1"]
    assert {"--worker=1", "--internal-ip"} < set(line)
    assert line[-1] == f"--command=sudo docker logs --tail=5 --follow {NAME}"
    done = look_at("logs", WORKDIR, ZONE, "--process=4")
    assert done.returncode == 2 and f"--process=4: {NAME} has 4, counted from 0" in done.stderr


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_not_there_is_said(cloud, action):
    done = look_at(action, WORKDIR, ZONE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"launch: there is no queued resource {NAME} in us-east5-b; it")
    assert len(cloud.calls) == 1


# ---- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tpu_vms.cases())
def test_plans_are_the_golden_ones(name):
    """After a change that is meant: python -m tests.launch.tpu_vms, and read the diff."""
    golden = tpu_vms.GOLDEN / f"{name}.sh"
    assert tpu_vms.text(tpu_vms.cases()[name]) == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tpu_vms.cases())
def test_every_line_of_a_plan_has_only_flags_of_gcloud(name):
    planned = tpu_vm.plan(tpu_vms.cases()[name])
    request = planned.request
    lines = [request.create, request.look, request.delete]
    if request.slices == 1:
        lines += [planned.prepare, planned.attempt, planned.signal]
    assert [problem for line in lines for problem in flags.problems(line)] == []


def test_dry_run_prints_what_would_be_run_and_runs_nothing(cloud):
    cloud.train("print('hello from', me, flush=True); end(0)")
    done = look_at(*RUN, "--dry-run")
    assert (done.returncode, done.stderr, cloud.calls) == (0, "", [])
    script = done.stdout.replace("sleep 30", "sleep 0.1")
    ran = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "hello from 1" in ran.stdout, ran.stderr
    printed = [call for call in cloud.calls if call[3] != "describe"]
    (cloud.place / "calls.jsonl").unlink()
    cloud.lives(QUEUE)
    assert launch(cloud, *RUN)[0] == 0
    assert [call for call in cloud.calls if call[3] != "describe"] == printed
