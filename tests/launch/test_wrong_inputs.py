"""Wrong inputs, over all launchers: each ends with a line that says what helps, and starts nothing.

In a place without Slurm, kubectl, gcloud and ssh.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch import LAUNCHERS

ROOT = Path(__file__).parents[2]
IMAGE = "--image=us-docker.pkg.dev/p/images/jaxlm:1"
CONFIG = "--config=configs/demo.py"
GKE = ("gke", CONFIG, IMAGE, "--workdir=gs://b/x")
SLURM = ("slurm", CONFIG, "--workdir=x")
SSH = ("ssh", CONFIG, "--workdir=x")
TPU_VM = ("tpu-vm", CONFIG, IMAGE, "--workdir=gs://b/x")
VM = ("tpu-vm", CONFIG, IMAGE, "--workdir=gs://b/x", "--zone=us-east5-b")
HOST = ("host", CONFIG, "--workdir=x")

WRONG: list[tuple[tuple[str, ...], int, str]] = [
    # of any
    ((), 2, "'' is not a launcher; use one of: "),
    (("k8s",), 2, "'k8s' is not a launcher; use one of: gke, host, local"),
    (("local", CONFIG), 2, "the following arguments are required: --workdir; see `python -m"),
    (("local", "--processes=0", "--workdir=x"), 2, "'0' is not a whole number from 1 up"),
    (("local", "--processes=２", "--workdir=x"), 2, "'２' is not a whole number from 1 up"),
    (("local", "--workdir=x", "--process=1"), 2, "--process differs from process to process"),
    (("local", "--workdir=gs://me:pw@b/x"), 2, "gs://...: was given with a user"),
    (("local", "--workdir=x", "--config.data.manifest=s3://b/m?key=1"), 2, "s3://...: was given"),
    (("local", "--workdir=file/x"), 78, "file/x/logs: Not a directory; choose a --workdir that"),
    (("local", "stop", "--workdir=x"), 2, "x: no launcher runs it, by x/logs/launcher.lock"),
    (("local", "logs", "--workdir=x"), 2, "x/logs/process-0.log: is not there"),
    (("local", "stop"), 2, "the following arguments are required: --workdir"),
    # host
    ((*HOST, "--place=moon"), 2, "invalid choice: 'moon'"),
    ((*HOST, "--place=slurm"), 2, "SLURM_PROCID is not set"),
    ((*HOST, "--place=jobset"), 2, "JAXLM_JOB_INDEX is not set"),
    ((*HOST, "--place=slurm", "--process=1"), 2, "--place=slurm says what --coordinator and"),
    ((*HOST, "--processes=2", "--process=2"), 2, "--process=2: --processes=2, counted from 0"),
    ((*HOST, "--processes=2", "--process=1"), 2, "--processes=2 needs --coordinator=HOST:PORT"),
    # ssh
    ((*SSH, "--hosts=nothing"), 2, "--hosts=nothing: cannot be read ("),
    ((*SSH, "--hosts=empty"), 2, "--hosts=empty: names no host; write one a line"),
    ((*SSH, "--hosts=twice"), 2, "twice:2: a is there already, in line 1"),
    ((*SSH, "--hosts=option"), 2, "option:1: '-oProxyCommand=x' is no host"),
    ((*SSH, "--hosts=loopback"), 2, "localhost: process 0 is there, and others cannot reach it"),
    ((*SSH, "--hosts=one"), 78, "ssh: is not installed; install an OpenSSH client"),
    # slurm
    (SLURM, 78, "squeue: is not installed; run this where jobs are submitted"),
    ((*SLURM, "--gpus-per-node=8", "--processes-per-node=8"), 2, "each would take all GPUs"),
    (("slurm", "run", "--workdir=x", "--logs=x", "--max-restarts=1", "--"), 2, "is for the script"),
    (("slurm", "logs", "--workdir=x"), 2, "x/logs/slurm.log: is not there; has the job started"),
    (("slurm", "stop", "--workdir=x"), 78, "squeue: is not installed"),
    # gke
    ((*GKE, "--accelerator=v9:2x2"), 2, "no accelerator 'v9'; known are v4, v5e, v5p"),
    ((*GKE, "--accelerator=v5p:3x5x7"), 2, "is not a multiple of the 4 that a host has"),
    ((*GKE, "--accelerator=v5p-64"), 2, "32 chips; write the chips along each axis, as"),
    ((*GKE, "--accelerator=h100:4x7"), 2, "7 GPUs a node, but a node of h100 has 8"),
    ((*GKE, "--accelerator=h100:4x8", "--slices=2"), 2, "slices are of TPUs; write more nodes"),
    ((*GKE, "--accelerator=v5p:2x4x4"), 78, "kubectl: is not installed; `gcloud components"),
    ((*GKE, "--accelerator=h100:8", "--workdir=/x"), 2, "--workdir=/x: pods share no disk"),
    ((*GKE, "--accelerator=h100:8", "--image=jaxlm"), 2, "may be another image at each start"),
    ((*GKE, "--accelerator=h100:8", "--queue=A b"), 2, "--queue=A b: must be lower case letters"),
    # tpu-vm
    ((*VM, "--accelerator=7x:4x4x4"), 2, "is not to be had as a TPU VM: the Cloud TPU API has v4"),
    ((*VM, "--accelerator=h100:8"), 2, "h100:1x8: is not to be had as a TPU VM"),
    ((*VM, "--accelerator=v5p:4x4x4x4"), 2, "a slice of v5p has 3 dimensions, in chips"),
    ((*VM, "--accelerator=v6e:4x4", "--zone=moon"), 2, "--zone=moon: must be a zone, as us-east5"),
    ((*VM, "--accelerator=v6e:4x4", "--gcloud=--zone=a"), 2, "the launcher sets that flag itself"),
    ((*VM, "--accelerator=v6e:4x4", "--spot", "--reserved"), 2, "not allowed with argument --spot"),
    ((*VM, "--accelerator=v6e:4x4"), 78, "gcloud: is not installed"),
    (("tpu-vm", "stop", "--zone=us-east5-b", "--workdir=gs://b/x"), 78, "gcloud: is not installed"),
    (("gke", "logs"), 2, "one of the arguments --workdir --name is required"),
    # tpu-vm
    ((*TPU_VM, "--accelerator=v6e:4x4"), 2, "the following arguments are required: --zone"),
    ((*TPU_VM, "--accelerator=v6e:4x4", "--zone=us-east5"), 2, "must be a zone, as us-east5-b"),
    ((*TPU_VM, "--accelerator=7x:4x4x4", "--zone=us-east5-b"), 2, "is not to be had as a TPU VM"),
    ((*TPU_VM, "--accelerator=v6e:4x4", "--zone=us-east5-b"), 78, "gcloud: is not installed; in"),
    (("tpu-vm", "stop", "--workdir=x", "--zone=us-east5-b"), 2, "TPU VMs share no disk; write"),
]


def test_there_are_some_of_each_launcher():
    assert len(WRONG) >= 30
    assert {argv[0] for argv, *_ in WRONG if argv} >= set(LAUNCHERS)


@pytest.mark.parametrize(("argv", "code", "said"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_a_wrong_input(argv, code, said, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    hosts = {"empty": "#\n", "twice": "a\na", "option": "-oProxyCommand=x", "one": "a"}
    for name, text in {**hosts, "loopback": "localhost\nb\n", "file": ""}.items():
        (here / name).write_text(text)
    before = sorted(here.rglob("*"))
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "id").symlink_to("/usr/bin/id")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "JAXLM"))}
    env |= {"PATH": str(bin_), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "launch", *argv]
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert said in lines[-1] and lines[-1].startswith("launch: ")
    assert len(lines) == 1 and done.stdout == ""
    assert sorted(here.rglob("*")) == before
