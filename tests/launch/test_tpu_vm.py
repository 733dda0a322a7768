"""The launcher of TPU VMs, as a command, with a gcloud in the path that knows the real one's flags.

What it would run on workers does run here, in bash: see `gcloud_stub` and `docker_stub`.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import tpu_vm, tpu_vm_arguments
from launch.arguments import name_of
from launch.tpu_vm import ACTIONS
from tests.launch import docker_stub, flags, gcloud_stub, tpu_vms
from tests.launch.watch import until, until_text

ROOT = Path(__file__).parents[2]
URL = "gs://bucket/runs/lm_7b"
WORKDIR, ZONE = f"--workdir={URL}", "--zone=us-east5-b"
NAME = name_of(URL)
IMAGE = "--image=us-docker.pkg.dev/project/images/jaxlm:1.0"
CONFIG = "--config=configs/lm_7b.py:v6e:4x4"
RUN = ("--accelerator=v6e:4x4", ZONE, CONFIG, WORKDIR, IMAGE, "--poll-seconds=1")
QUEUE = ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]

TRAIN = """
import json, os, pathlib, signal, sys, time
from launch.exits import Exit
host = pathlib.Path(os.environ["STUB_HOST"])
me = int(host.name.rpartition(".")[2])
shared = host.parent.parent
starts = len(list(host.glob("start-*"))) + 1
(host / f"start-{starts}").write_text(json.dumps(sys.argv[1:]))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
def end(code, *lines):
    if code:
        line = Exit(0.0, me, code, lines, bool(stopped)).line
        sys.stdout.buffer.write(line)
        sys.stdout.flush()
    sys.exit(code)
def until_stopped(then=75):
    while not stopped:
        time.sleep(0.02)
    end(then)
"""
"""In place of python in the container: the place of `launch host`, and how it tells its end."""


class Cloud:
    """What the stub knows, and what it was asked."""

    def __init__(self, place: Path):
        self.place = place
        self.lives(QUEUE)

    def lives(self, *states: list[str]) -> None:
        gcloud_stub.write(self.place, "lives.json", states)

    def train(self, code: str) -> None:
        (self.place / "train.py").write_text(TRAIN + textwrap.dedent(code))

    def refuses(self, *refusals: dict[str, str]) -> None:
        gcloud_stub.write(self.place, "refusals.json", refusals)

    def holds(self, state: str, *more: str, **changes: Any) -> None:
        """A queued resource that is there already."""
        made = tpu_vm_arguments.run(*tpu_vm_arguments.read((*RUN, *more), ""))
        found = gcloud_stub.resource(made.request.create[1:]) | changes
        found["state"] = {**found["state"], "state": state}
        gcloud_stub.write(self.place, "resource.json", found)
        self.lives([], QUEUE)

    def becomes(self, state: str, **data: Any) -> None:
        found = json.loads((self.place / "resource.json").read_text())
        found["state"] = {"state": state, **data}
        gcloud_stub.write(self.place, "resource.json", found)

    def host(self, worker: int, node: str = NAME) -> Path:
        return self.place / f"hosts/{node}.{worker}"

    @property
    def is_empty(self) -> bool:
        return not (self.place / "resource.json").exists()

    @property
    def calls(self) -> list[list[str]]:
        path = self.place / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def verbs(self) -> list[str]:
        """Of calls that change something, in order."""
        return [v for call in self.calls if (v := call[3]) in ("create", "delete")]


@pytest.fixture
def cloud(tmp_path, monkeypatch) -> Iterator[Cloud]:
    """In front of a path that has no other."""
    tools = {
        "gcloud": f'exec {sys.executable} {gcloud_stub.__file__} "$@"',
        "docker": f'exec {sys.executable} {docker_stub.__file__} "$@"',
        "python": f'exec {sys.executable} {tmp_path}/train.py "$@"',
        "sudo": 'exec "$@"',
        "curl": """echo '{"access_token":"ya29.x","expires_in":3599}'""",
    }
    (tmp_path / "bin").mkdir()
    for name, line in tools.items():
        tool = tmp_path / "bin" / name
        tool.write_text(f"#!/bin/sh\n{line}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("GCLOUD_STUB", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    found = Cloud(tmp_path)
    yield found
    for pid in tmp_path.glob("hosts/*/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)


DRIVER = """
import sys
from launch import job, tpu_vm
job._LONGEST_DELAY_S, job._position = 0.05, lambda workdir: -1
sys.exit(tpu_vm.main(sys.argv[1:]))
"""
"""Without waits, and without asking a bucket how far the run is."""


def start(cloud: Cloud, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, f"--logs={cloud.place}/logs", *arguments]
    with (cloud.place / "out").open("ab") as out, (cloud.place / "err").open("ab") as err:
        return subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)


def launch(cloud: Cloud, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, and the launcher's own words."""
    code = start(cloud, *arguments).wait(60)
    return code, (cloud.place / "out").read_text(), said(cloud)


def said(cloud: Cloud) -> str:
    return (cloud.place / "err").read_text()


def look_at(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "launch", "tpu-vm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


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


# ---- what cannot be ------------------------------------------------------------------------------


def test_what_the_queue_refuses_is_78(cloud):
    cloud.lives(["WAITING_FOR_RESOURCES"])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", "WAITING_FOR_RESOURCES")
    cloud.becomes("FAILED", failedData={"error": {"code": 8, "message": "no more capacity"}})
    assert process.wait(60) == 78
    assert f"launch: {NAME}: FAILED: no more capacity\n" in said(cloud)
    assert cloud.verbs == ["create", "delete"] and cloud.is_empty


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_what_is_left_of_an_earlier_one_makes_room(cloud, state):
    cloud.train("end(0)")
    cloud.holds(state)
    assert launch(cloud, *RUN)[0] == 0
    assert cloud.verbs == ["delete", "create", "delete"]


@pytest.mark.parametrize("state", ["ACTIVE", "FAILED", "SUSPENDED", "WAITING_FOR_RESOURCES"])
def test_one_of_somebody_else_is_not_touched(cloud, state):
    node = {"acceleratorType": "v6e-16", "labels": {"owner": "me"}}
    cloud.holds(state, tpu={"nodeSpec": [{"node": node}]})
    for arguments in ((*RUN, f"--logs={cloud.place}"), *((a, WORKDIR, ZONE) for a in ACTIONS)):
        done = look_at(*arguments)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f"launch: the queued resource {NAME} was not made by this launcher; use --name"
        )
    assert {call[3] for call in cloud.calls} == {"describe"}


def test_one_of_another_size_is_stopped_first(cloud):
    cloud.holds("ACTIVE", "--accelerator=v6e:8x8")
    code, _, err = launch(cloud, *RUN)
    assert code == 2 and "is there already, as 1 x v6e-64, and not 1 x v6e-16; stop it first" in err
    assert cloud.verbs == []


def test_workers_that_cannot_be_made_ready_are_78(cloud):
    cloud.train("end(0)")
    code, _, err = launch(cloud, *RUN, "--setup=echo no disk >&2; false")
    assert code == 78 and cloud.is_empty and err.count("no disk") == 6
    assert "its workers could not be made ready, 3 times, exit code 1; what they said is" in err


def test_one_that_somebody_deletes_is_not_made_again(cloud):
    cloud.train("end(75)")
    cloud.lives([*QUEUE, "DELETING"], [])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", f"{NAME}: DELETING")
    (cloud.place / "resource.json").unlink()
    assert process.wait(60) == 75
    assert f"{NAME} was deleted, and is not made again" in said(cloud)
    assert cloud.verbs == ["create"]


def test_a_look_that_fails_in_the_queue_is_repeated(cloud):
    cloud.train("end(0)")
    cloud.lives(["WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "ACTIVE"])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", "WAITING")
    cloud.refuses({"of": "describe", "err": "ERROR: (gcloud) UNAVAILABLE: try again"})
    assert process.wait(60) == 0 and "UNAVAILABLE: try again; asking again" in said(cloud)


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


# ---- wrong inputs --------------------------------------------------------------------------------


def instead(**changes: str | None) -> list[str]:
    """The arguments of `RUN`, some of them others, or left out."""
    given = dict(a.removeprefix("--").split("=", 1) for a in RUN)
    merged = {**given, **{k.replace("_", "-"): v for k, v in changes.items()}}
    return [f"--{name}={value}" for name, value in merged.items() if value is not None]


WRONG = [
    (instead(accelerator="v9:4x4"), "'v9:4x4': no accelerator 'v9'; known are v4, v5e, v5p"),
    (instead(accelerator="h100:8"), "h100:1x8: is not to be had as a TPU VM: the Cloud TPU API"),
    (instead(accelerator="7x:4x4x4"), "7x:4x4x4: is not to be had as a TPU VM"),
    (instead(accelerator="v5p:4x4x16"), "a TPU VM of 256 chips comes as v5p:4x8x8; use that shape"),
    (instead(accelerator=None), "the following arguments are required: --accelerator"),
    (instead(zone=None), "the following arguments are required: --zone"),
    (instead(zone="us-east5"), "--zone=us-east5: must be a zone, as us-east5-b"),
    (instead(image=None), "the following arguments are required: --image"),
    (instead(image="a/jaxlm"), "may be another image at each start; name a tag"),
    (instead(slices="0"), "argument --slices: '0' is not a whole number from 1 up"),
    (instead(workdir="runs/a"), "--workdir=runs/a: TPU VMs share no disk; write gs://BUCKET/PATH"),
    (instead(workdir="gs://user:hush@bucket/a"), "which may be secret"),
    (instead(name="Run_7"), "--name=Run_7: must be lower case letters, digits and -"),
    ([*RUN, "--spot", "--reserved"], "--reserved: not allowed with argument --spot"),
    ([*RUN, "--gcloud=network"], "--gcloud=network: is no flag of gcloud; write --gcloud=--FLAG"),
    ([*RUN, "--gcloud=--labels=a=b"], "--gcloud=--labels=a=b: the launcher sets that flag itself"),
    ([*RUN, "--ssh=--worker=0"], "--ssh=--worker=0: the launcher sets that flag itself"),
    ([*RUN, "--process=1"], "--process differs from process to process, the launcher sets it"),
    ([*RUN, "--config.watch.grace_seconds=9"], "use --grace-seconds, which tells the container"),
    ([*RUN, "--config.data.manifest=s3://k:hush@b/m.json"], "which may be secret"),
    (["status", ZONE], "one of the arguments --workdir --name is required"),
    (["stop", "--workdir=runs/a", ZONE], "--workdir=runs/a: TPU VMs share no disk"),
    (["logs", WORKDIR, ZONE, "--process=x"], "argument --process: 'x' is not a whole number"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_input_is_2_and_nothing_is_asked_of_the_cloud(cloud, capfd, arguments, message):
    try:
        code = tpu_vm.main(arguments)
    except SystemExit as e:
        code = e.code
    out, err = capfd.readouterr()
    assert (code, out, cloud.calls) == (2, "", []), err
    assert message in err.splitlines()[-1] and "hush" not in err


REFUSED = [
    # What gcloud 528 says, of itself or of an answer of the API.
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) Error parsing [queued_resource].\n"
        "The [queued_resource] resource is not properly specified.\n"
        "Failed to find attribute [project]. The attribute can be set in the following ways: \n"
        "- set the property `core/project`",
        "choose one with `gcloud config set project PROJECT` or --project",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) You do not currently have an "
        "active account selected.\nPlease run:\n\n  $ gcloud auth login\n\nto obtain new "
        "credentials.",
        "log in with `gcloud auth login`",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) PERMISSION_DENIED: Cloud TPU API "
        "has not been used in project 123 before or it is disabled.\n"
        "- '@type': type.googleapis.com/google.rpc.ErrorInfo\n  reason: SERVICE_DISABLED",
        "enable it with `gcloud services enable tpu.googleapis.com`",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) PERMISSION_DENIED: Permission "
        "'tpu.queuedResources.get' denied on 'projects/p/locations/us-east5-b'",
        "who runs this needs roles/tpu.admin",
    ),
    ("Segmentation fault", "Segmentation fault"),
    ("", "it failed in silence"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
@pytest.mark.parametrize("arguments", [RUN, ("status", WORKDIR, ZONE), ("stop", WORKDIR, ZONE)])
def test_a_gcloud_that_refuses_is_78_in_one_line(cloud, words, message, arguments):
    cloud.refuses({"of": "describe", "err": words})
    logs = [f"--logs={cloud.place}"] if arguments == RUN else []
    done = look_at(*logs, *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 78 and message in line and len(cloud.calls) == 1
    assert line.startswith(f"launch: gcloud compute tpus queued-resources describe {NAME}: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has "
            "been exceeded. Limit: 0 in zone us-east5-b.",
            "ask for quota, where spot machines have their own",
        ),
        (
            "INVALID_ARGUMENT: Accelerator type v6e-16 is not available in zone us-east5-b.",
            "see what there is with `gcloud compute tpus accelerator-types list --zone=ZONE`",
        ),
        (
            f"ALREADY_EXISTS: Resource 'projects/p/queuedResources/{NAME}' already exists",
            "somebody else has just made it: choose another --name",
        ),
    ],
)
def test_a_request_that_is_refused_is_78_and_leaves_nothing(cloud, words, message):
    cloud.refuses({"of": "create", "err": f"ERROR: (gcloud) {words}"})
    code, _, err = launch(cloud, *RUN)
    assert code == 78 and message in err.splitlines()[-1]
    assert cloud.verbs == ["create"]


def test_no_gcloud_is_78(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tpu_vm.main(["status", WORKDIR, ZONE]) == 78
    assert capfd.readouterr().err.startswith("launch: gcloud: is not installed; install the Google")
