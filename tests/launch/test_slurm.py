"""The launcher of Slurm where there is none: what it would submit, and what it refuses."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch import exits
from launch.arguments import name_of
from launch.slurm import main

RUN = ("--config=configs/lm_7b.py", "--workdir=/shared/runs/x")

SCRIPT = """\
sbatch --parsable <<'END'
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/x/logs/slurm.log
#SBATCH --chdir={here}
#SBATCH --partition=gpu
#SBATCH --time=24:00:00
module load cuda
exec {python} -m launch slurm run --workdir=/shared/runs/x --logs=/shared/runs/x/logs \
--max-restarts=3 -- --config=configs/lm_7b.py --fallback '--config.train.end=10 steps'
END
"""


def test_the_script(capsys):
    more = ["--sbatch=--partition=gpu", "--sbatch=--time=24:00:00", "--setup=module load cuda"]
    train = ["--fallback", "--config.train.end=10 steps"]
    assert main(["--nodes=4", "--gpus-per-node=8", "--dry-run", *RUN, *more, *train]) == 0
    values = {"name": name_of("/shared/runs/x"), "here": Path.cwd(), "python": sys.executable}
    assert capsys.readouterr().out == SCRIPT.format(**values)


def test_a_script_survives_odd_names(tmp_path, capsys):
    """Its shell reads the words that were given."""
    words = [
        "--config=a b.py",
        "--config.x='$HOME' `id` \"q\"",
        "--workdir=" + str(tmp_path / "a b"),
    ]
    assert main(["--dry-run", *words]) == 0
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.startswith("exec ")
    assert {*words[:2], words[2]} <= {*shlex.split(last)}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--nodes=0"], "'0' is not a whole number from 1 up"),
        (["--nodes=two"], "'two' is not a whole number"),
        (["--gpus-per-node=-1"], "'-1' is not a whole number from 0 up"),
        (["--process=1"], "--process differs from process to process, the launcher sets it"),
        (["--processes=4"], "--processes differs from process to process"),
        (["--coordinator=a:1"], "--coordinator differs from process to process"),
        (["--workdir=gs://me:secret@b/x"], "gs://...: was given with a user"),
        (["--config.data.manifest=s3://b/x?sig=1"], "s3://...: was given with a user, a query"),
    ],
)
def test_wrong_usage(argv, said, capfd):
    with pytest.raises(SystemExit) as e:
        main([*RUN, *argv])
    assert e.value.code == exits.USAGE and said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (
            ["--gpus-per-node=8", "--processes-per-node=8"],
            2,
            "each would take all GPUs of its node",
        ),
        ([], 78, "squeue: is not installed; run this where jobs are submitted"),
        (["run", "--workdir=x", "--logs=x", "--max-restarts=1", "--"], 2, "is for the script that"),
        (["stop", "--workdir=/x"], 78, "squeue: is not installed"),
        (["logs", "--workdir=/nothing"], 2, "/nothing/logs/slurm.log: is not there; has the job"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(argv, code, said, tmp_path):
    """In a place without Slurm; nothing is made."""
    ids = tmp_path / "bin"
    ids.mkdir()
    (ids / "id").symlink_to("/usr/bin/id")
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")} | {"PATH": str(ids)}
    words = argv if argv and not argv[0].startswith("-") else [*RUN, *argv]
    command = [sys.executable, "-m", "launch", "slurm", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("launch: ") and said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("/shared/runs/x").exists()
