"""`python -m launch slurm` on a real Slurm of one node."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import runs
from jaxlm import workdir as workdirs
from launch import sbatch
from tests.system import slurm

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="Slurm is of Linux"),
]

STEPS = 160
HEAVY = (f"train.end={STEPS} steps", "model.d_model=256", "model.d_ff=2048")
"""A quarter of a second a step: a run that lasts."""
OFTEN = ("checkpoint.every=20 steps",)


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("slurm") / "root"
    with slurm.cluster(root) as env, pytest.MonkeyPatch.context() as patch:
        for name, value in (env | runs.environment(1)).items():
            patch.setenv(name, value)
        patch.setenv("SLURM_CONF", env["SLURM_CONF"])
        yield


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    code, output = runs.finish(runs.launch(config, workdir, *HEAVY), workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


def launch(*arguments: str) -> str:
    command = [sys.executable, "-m", "launch", "slurm", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def submit(config: Path, workdir: Path, *more: str) -> str:
    """The number of the job."""
    flags = [f"--config.{override}" for override in (*HEAVY, *OFTEN)]
    place = (f"--config={config}", f"--workdir={workdir}", "--processes-per-node=2")
    return launch(*place, *more, *flags).partition(", job ")[2].partition(";")[0]


def until(condition: Callable[[], object], log: Path, patience_s: float = 180.0) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, log.read_text()[-3000:] if log.exists() else "no log"
        time.sleep(0.1)


def trains(log: Path, start: int) -> Callable[[], bool]:
    """Whether this start, counted from 1, has come to report steps."""
    return lambda: log.exists() and "\nstep " in "".join(log.read_text().split("compiling")[start:])


def queued(job: str) -> str:
    return sbatch.SLURM.call(("squeue", "--noheader", "--format=%T", f"--jobs={job}")).strip()


def ends(job: str) -> bool:
    states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
    said = sbatch.SLURM.call(("scontrol", "show", "job", job))
    return any(f"JobState={state}" in said for state in states)


def test_a_job_is_requeued_when_it_is_told_to_end_and_at_its_limit(config, undisturbed, tmp_path):
    """Each time it goes on from where all processes have saved."""
    workdir = tmp_path / "run"
    log = workdir / "logs" / sbatch.LOG
    # Slurm sends its notice up to 30 s early: 18 to 48 s after a start. The run takes longer.
    limit = ("--sbatch=--time=1", "--notice-seconds=12")
    job = submit(config, workdir, *limit, f"--config.{runs.SLOWLY}")
    with pytest.raises(AssertionError, match=f"is in the queue already, job {job}; stop it first"):
        submit(config, workdir)
    until(trains(log, 1), log)
    assert f"job {job}, RUNNING" in launch("status", f"--workdir={workdir}")
    sbatch.SLURM.call(("scancel", "--signal=TERM", job))
    until(lambda: ends(job), log, 400)
    text = log.read_text()
    assert "SIGTERM: saving" in text and "SIGUSR1: saving" in text, text
    assert f"stopped as asked: scontrol requeue {job}" in text
    starts = [start.step for start in workdirs.history(workdir)]
    assert len({*starts}) >= 3 and starts == sorted(starts), starts
    assert workdirs.status(workdir)["state"] == "done", text
    runs.assert_same(runs.state(workdir, STEPS), runs.state(undisturbed, STEPS))
    assert f"step    {STEPS}/{STEPS}" in launch("logs", f"--workdir={workdir}")
    assert sbatch.GONE in launch("status", f"--workdir={workdir}")


def test_a_job_gives_way_to_an_urgent_one(config, tmp_path):
    """By Slurm's own preemption: it saves within the partition's grace time, and comes back."""
    workdir = tmp_path / "run"
    log = workdir / "logs" / sbatch.LOG
    job = submit(config, workdir)
    until(trains(log, 1), log)
    urgent = ("--partition=urgent", "--exclusive", f"--output={tmp_path}/urgent.log")
    sbatch.SLURM.call(("sbatch", "--wait", *urgent, "--wrap=true"), wait_s=120)
    assert runs.committed(workdir), "it was ended before it had saved"
    until(trains(log, 2), log)
    text = log.read_text()
    assert "SIGTERM: saving" in text and f"stopped as asked: scontrol requeue {job}" in text, text
    assert workdirs.history(workdir)[-1].step > 0
    launch("stop", f"--workdir={workdir}")
    until(lambda: ends(job), log)


def test_a_job_that_is_stopped_is_not_requeued(config, tmp_path):
    workdir = tmp_path / "run"
    log = workdir / "logs" / sbatch.LOG
    job = submit(config, workdir)
    until(trains(log, 1), log)
    launch("stop", f"--workdir={workdir}")
    until(lambda: ends(job), log)
    assert workdirs.status(workdir)["state"] == "stopped", log.read_text()
    assert runs.committed(workdir), "nothing was saved"


def test_a_lost_process_starts_all_again_within_the_job(config, tmp_path):
    workdir = tmp_path / "run"
    log = workdir / "logs" / sbatch.LOG
    job = submit(config, workdir)
    until(lambda: runs.committed(workdir), log)
    victims = [pid for pid in trainers(workdir) if "--process=1" in command_of(pid)]
    os.kill(victims[0], 9)
    until(trains(log, 2), log)
    text = log.read_text()
    assert "launch: process 1 was killed by SIGKILL" in text
    assert "launch: starting again in 1 s, at position" in text
    assert queued(job) == "RUNNING"
    assert workdirs.history(workdir)[-1].step > 0
    launch("stop", f"--workdir={workdir}")
    until(lambda: ends(job), log)


def test_what_cannot_train_ends_at_once(config, tmp_path):
    """Without a new start; the reason first."""
    workdir = tmp_path / "run"
    log = workdir / "logs" / sbatch.LOG
    job = submit(config, workdir, "--config.train.batch_size=3")
    until(lambda: ends(job), log)
    said = [line for line in log.read_text().splitlines() if line.startswith("launch:")]
    assert "ended with exit code 2 (wrong usage, config or data)" in said[0], log.read_text()
    assert "ExitCode=2:0" in sbatch.SLURM.call(("scontrol", "show", "job", job))


def trainers(workdir: Path) -> list[int]:
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in found if f"jaxlm train --workdir={workdir}" in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
