"""`python -m launch ray`: on a real Slurm, whose one node has two tasks and so two nodes of Ray,
and on a cluster that is there."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import place, sbatch
from tests.data_tools.test_kill import committed, finish, prepare, same
from tests.launch.watch import until
from tests.system import ray_nodes, slurm
from tests.system.test_ray import outputs

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="Slurm is of Linux"),
]

PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def queue(tmp_path_factory) -> Iterator[None]:
    """Slurm's, for whoever calls its commands."""
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


@pytest.fixture
def workdir(tmp_path) -> Path:
    prepare(tmp_path)
    return tmp_path


def launch(*arguments: str) -> str:
    command = [sys.executable, "-m", "launch", "ray", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def submit(workdir: Path, *more: str, nodes: int = 2) -> str:
    """The number of the job."""
    where = (f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}")
    tasks = f"--sbatch=--ntasks-per-node={nodes}"
    return launch(*where, tasks, *more).partition(", job ")[2].partition(";")[0]


def show(job: str) -> str:
    return sbatch.SLURM.call(("scontrol", "show", "job", job))


def wait(condition: Callable[[], bool], workdir: Path) -> None:
    try:
        until(condition, PATIENCE_S)
    except AssertionError as e:
        raise AssertionError(log(workdir)[-5000:]) from e


def ends(job: str, workdir: Path) -> str:
    """What Slurm says of it then."""
    going = re.compile("JobState=(PENDING|RUNNING|COMPLETING)")
    wait(lambda: not going.search(show(job)), workdir)
    return show(job)


def log(workdir: Path) -> str:
    path = workdir / "logs" / sbatch.LOG
    return path.read_text() if path.exists() else ""


def servers(job: str) -> list[int]:
    """Processes of Ray's that the job's cluster stands on."""
    port = f"--gcs_server_port={place.PORT + int(job) % place.PORTS}"
    return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/cmdline") if serves(p, port)]


def serves(command: Path, port: str) -> bool:
    try:
        words = command.read_bytes().decode().split("\0")
    except OSError:
        return False
    return words[0].endswith("gcs_server") and port in words


def test_a_build_is_stopped_and_goes_on(queue, workdir, local):
    job = submit(workdir)
    wait(lambda: committed(workdir, "stages/read") >= 2, workdir)
    environment = Path(f"/proc/{servers(job)[0]}/environ").read_bytes().split(b"\0")
    assert b"RAY_AUTH_MODE=token" in environment, "others could give it work"
    assert f"job {job}, RUNNING" in launch("status", f"--workdir={workdir}")
    launch("stop", f"--workdir={workdir}")
    assert "JobState=FAILED" in ends(job, workdir), log(workdir)
    assert not (workdir / "manifest.json").exists()
    assert "told to end; the same command goes on from here" in log(workdir)
    assert not servers(job)
    job = submit(workdir)
    assert "ExitCode=0:0" in ends(job, workdir), log(workdir)
    assert re.search(r"^read: \d+ run, [1-9]\d* reused", log(workdir), re.M), log(workdir)
    assert "Ray runtime started" in (workdir / "logs/process-1.log").read_text()
    said = launch("status", f"--workdir={workdir}")
    assert sbatch.GONE in said and "manifest.json: is there" in said
    same(workdir, local)
    assert outputs(workdir) == outputs(local)


def test_a_lost_head_is_started_again_within_the_allocation(queue, workdir, local):
    job = submit(workdir, nodes=1)
    wait(lambda: committed(workdir, "stages/read") >= 2, workdir)
    (server,) = servers(job)
    os.kill(server, signal.SIGKILL)
    said = ends(job, workdir)
    assert "ExitCode=0:0" in said and "Restarts=0" in said, log(workdir)
    assert "launch: Ray's head has ended, and the build with it; its log is" in log(workdir)
    assert "launch: starting again in 1 s, at position" in log(workdir)
    same(workdir, local)


def test_before_the_time_limit_a_build_goes_back_into_the_queue(queue, workdir, local):
    """Slurm tells the script, as here."""
    job = submit(workdir)
    wait(lambda: committed(workdir, "stages/read") >= 2, workdir)
    sbatch.SLURM.call(("scancel", "--batch", "--signal=TERM", job))
    said = ends(job, workdir)
    assert f"launch: stopped as asked: scontrol requeue {job}" in log(workdir)
    assert "ExitCode=0:0" in said and "Restarts=1" in said, log(workdir)
    same(workdir, local)


def test_a_wrong_recipe_ends_the_job_at_once(queue, workdir):
    job = submit(workdir, "--config.workers=many")
    assert "ExitCode=2:0" in ends(job, workdir)
    assert "config.workers='many': must be int" in log(workdir)
    assert "starting again" not in log(workdir)


@ray_nodes.FORKS
def test_a_cluster_that_is_there(workdir, local):
    command = [sys.executable, "-m", "launch", "ray"]
    command += [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    with ray_nodes.cluster() as cluster:
        command.append(f"--address={cluster.address}")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: committed(workdir, "stages/read") >= 2, PATIENCE_S)
            process.terminate()
            _, err = process.communicate()
        assert process.returncode == 75, err
        assert "launch: stopped as asked; the same command goes on from there" in err
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    same(workdir, local)
