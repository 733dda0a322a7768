"""`python -m launch ray` on a real Slurm: two nodes of Ray, as two tasks of its one node."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import progress, sbatch
from tests.data_tools.test_kill import committed, finish, prepare, same
from tests.launch.watch import until
from tests.system import slurm
from tests.system.test_ray import outputs

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="Slurm is of Linux"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("slurm") / "root"
    with slurm.cluster(root) as env, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", env["SLURM_CONF"])
        yield


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    """The work directory of a build without Ray."""
    workdir = tmp_path_factory.mktemp("local")
    prepare(workdir)
    finish(workdir)
    return workdir


def launch(*arguments: str) -> str:
    command = [sys.executable, "-m", "launch", "ray", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def submit(workdir: Path, *more: str) -> str:
    """The number of the job."""
    where = (f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}")
    two = "--sbatch=--ntasks-per-node=2"
    return launch(*where, two, *more).partition(", job ")[2].partition(";")[0]


def ended(job: str) -> Callable[[], bool]:
    def look() -> bool:
        said = sbatch.SLURM.call(("scontrol", "show", "job", job))
        return not any(f"JobState={state}" in said for state in ("PENDING", "RUNNING", "COMPL"))

    return look
