"""A cloud for tests of the launcher of TPU VMs: `gcloud_stub` and `docker_stub` in the path.

What the launcher would run on workers does run here, in bash.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import tpu_vm_arguments
from launch.arguments import name_of
from tests.launch import docker_stub, gcloud_stub

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


@contextlib.contextmanager
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
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
from launch import job, progress, tpu_vm
job._LONGEST_DELAY_S, progress.POSITIONS["run"] = 0.05, lambda workdir: -1
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
