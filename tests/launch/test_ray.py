"""The launcher of data builds on Ray, without Ray: what it would run, what it refuses, and what a
node does when one of its two programs ends."""

import os
import shlex
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from launch import exits, ray_node
from launch.arguments import name_of
from launch.place import Place
from launch.process import Spec
from launch.ray import main
from tests.launch.watch import until, until_text

BUILD = ("--config=configs/data/demo.py", "--workdir=/shared/data/x")

SCRIPT = """\
sbatch --parsable <<'END'
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --open-mode=append
#SBATCH --output=/shared/data/x/logs/slurm.log
#SBATCH --chdir={here}
#SBATCH --partition=cpu
export RAY_TMPDIR=/scratch
exec {python} -m launch ray run --workdir=/shared/data/x --logs=/shared/data/x/logs \
--max-restarts=3 -- --config=configs/data/demo.py --config.seed=7
END
"""


def test_the_script(capsys):
    more = ["--sbatch=--partition=cpu", "--setup=export RAY_TMPDIR=/scratch", "--config.seed=7"]
    assert main(["--nodes=4", "--dry-run", *BUILD, *more]) == 0
    values = {"name": name_of("/shared/data/x"), "here": Path.cwd(), "python": sys.executable}
    assert capsys.readouterr().out == SCRIPT.format(**values)


def test_on_a_cluster_that_is_there(capsys):
    assert main(["--address=10.0.0.1:6379", "--dry-run", *BUILD, "--config.seed=7"]) == 0
    program = [sys.executable, "-m", "data_tools", "build", "--engine=ray"]
    where = ["--ray-address=10.0.0.1:6379", BUILD[1], BUILD[0]]
    assert shlex.split(capsys.readouterr().out) == [*program, *where, "--config.seed=7"]


def test_what_a_node_runs(tmp_path):
    start = [*ray_node.RAY, "--num-cpus=64"]
    build, head = ray_node.plan(Place(0, 4, "localhost:61441"), ["build"], tmp_path, "64")
    assert build.command == ("build", "--ray-address=localhost:61441", "--ray-nodes=4")
    options = ["--head", "--port=61441", "--include-dashboard=false"]
    assert head.command == (*start[:-1], *options, start[-1])  # no address: it is this machine's
    (worker,) = ray_node.plan(Place(3, 4, "localhost:61441"), ["build"], tmp_path, "64")
    assert worker.command == (*start[:-1], "--address=localhost:61441", start[-1])
    assert (build.log.name, worker.log.name) == ("process-0.log", "process-3.log")


def test_the_head_says_the_address_by_which_others_find_it(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostbyname", {"node1": "10.1.0.1"}.__getitem__)
    _, head = ray_node.plan(Place(0, 2, "node1:61441"), ["build"], tmp_path)
    assert "--node-ip-address=10.1.0.1" in head.command
    assert not any(word.startswith("--num-cpus") for word in head.command)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--nodes=0"], "'0' is not a whole number from 1 up"),
        (["--engine=local"], "--engine: the launcher sets it; remove it"),
        (["--ray-nodes=3"], "--ray-nodes: the launcher sets it; remove it"),
        (["--", "--ray-address=a:1"], "--ray-address: the launcher sets it; remove it"),
        (["--workdir=gs://b/x"], "--workdir=gs://b/x: a build needs a directory that all nodes"),
        (["--address=a:1", "--nodes=2"], "--nodes is for a job of Slurm; remove it or --address"),
        (["--address=a:1", "--setup=x"], "--setup is for a job of Slurm; remove it or --address"),
        (["--config.source=s3://b/x?sig=1"], "s3://...: was given with a user, a query"),
    ],
)
def test_wrong_usage(argv, said, capfd):
    with pytest.raises(SystemExit) as e:
        main([*BUILD, *argv])
    err = capfd.readouterr().err
    assert e.value.code == exits.USAGE and err.startswith("launch: ") and said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        ([*BUILD], 78, "squeue: is not installed; run this where jobs are submitted"),
        (["stop", "--workdir=/x"], 78, "squeue: is not installed"),
        (["logs", "--workdir=/nothing"], 2, "/nothing/logs/slurm.log: is not there"),
        (["run", "--workdir=x", "--logs=x", "--max-restarts=1", "--"], 2, "is for the script that"),
        (["node", "--workdir=x", "--logs=x", "--"], 2, "SLURM_PROCID is not set"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(argv, code, said, tmp_path, monkeypatch, capfd):
    """In a place without Slurm."""
    (tmp_path / "id").symlink_to("/usr/bin/id")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("SLURM", "RAY_"))]:
        monkeypatch.delenv(name)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "SLURM_EXPORT_ENV"):
        monkeypatch.setenv(name, "")  # what is set inside is taken back
    assert main(argv) == code
    err = capfd.readouterr().err
    assert err.startswith("launch: ") and said in err and err.count("\n") == 1


# ---- the first node ------------------------------------------------------------------------------

ON_TERM = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit({}))\n"
LASTS = ON_TERM + "print('up')\ntime.sleep(60)"


def lead(tmp_path: Path, build: str, head: str) -> exits.Exit:
    """The two programs are Python's."""
    program = (sys.executable, "-c")
    specs = (
        Spec(0, (*program, build), tmp_path / "build.log"),
        Spec(exits.OF_ALL, (*program, head), tmp_path / "head.log"),
    )
    return ray_node.lead(*specs)


@pytest.mark.parametrize("code", [0, 1, 2, 78])
def test_the_build_s_end_ends_the_head(tmp_path, code):
    ended = lead(tmp_path, f"import sys; print('last'); sys.exit({code})", LASTS.format(1))
    assert (ended.index, ended.status, ended.stopped) == (0, code, False)
    assert ended.tail == ("last",)


def test_the_head_s_end_ends_the_build_and_is_a_reason_to_start_again(tmp_path, capfd):
    ended = lead(tmp_path, LASTS.format(75), "import sys; print('no room'); sys.exit(1)")
    assert (ended.index, ended.status, ended.stopped) == (0, 75, False)
    said = f"launch: Ray's head has ended, and the build with it; its log is {tmp_path}/head.log\n"
    assert capfd.readouterr().err == said


def test_a_build_that_is_killed_says_so(tmp_path):
    ended = lead(tmp_path, "import os; os.kill(os.getpid(), 9)", LASTS.format(1))
    assert (ended.status, ended.code) == (-9, exits.RESTART)


def test_what_ignores_its_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_node, "_END_S", 0.3)
    deaf = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\ntime.sleep(60)"
    wait = f"import pathlib, time\nwhile 'up' not in pathlib.Path({str(tmp_path / 'head.log')!r})"
    build = f"{wait}.read_text(): time.sleep(0.01)"
    assert lead(tmp_path, build, deaf).status == exits.DONE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_told_to_end(tmp_path, number):
    """Both end; whatever the build makes of it, it is to be started again."""

    def tell() -> None:
        for name in ("build", "head"):
            until_text(tmp_path / f"{name}.log", "up\n")
        os.kill(os.getpid(), number)

    threading.Thread(target=tell).start()
    ended = lead(tmp_path, LASTS.format(1), LASTS.format(1))
    assert (ended.status, ended.stopped) == (exits.RESTART, True)


# ---- the others ----------------------------------------------------------------------------------


def test_a_worker_is_started_again_for_as_long_as_the_head_answers(tmp_path, monkeypatch, capfd):
    for name, seconds in (("_POLL_S", 0.02), ("AGAIN_S", 0.05), ("GONE_S", 0.2)):
        monkeypatch.setattr(ray_node, name, seconds)
    starts = tmp_path / "starts"
    code = f"print(file=open({str(starts)!r}, 'a'))\n{ON_TERM.format(0)}"
    code += f"if len(open({str(starts)!r}).read()) < 3: sys.exit(1)\n"
    worker = Spec(1, (sys.executable, "-c", code + "time.sleep(60)"), tmp_path / "process-1.log")
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)

    def end_it() -> None:
        until(lambda: starts.exists() and len(starts.read_text()) == 3)
        server.close()

    threading.Thread(target=end_it).start()
    here = Place(1, 2, f"127.0.0.1:{server.getsockname()[1]}")
    assert ray_node.follow(here, worker).status == exits.DONE
    err = capfd.readouterr().err
    again = "Ray's worker: process 1 ended with exit code 1 (a crash); starting it again in 0 s"
    assert err.count(again) == 2


def test_no_head(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(ray_node, "PATIENCE_S", 0.2)
    monkeypatch.setattr(ray_node, "_POLL_S", 0.02)
    worker = Spec(1, ("false",), tmp_path / "process-1.log")
    assert ray_node.follow(Place(1, 2, "127.0.0.1:1"), worker).status == exits.DONE
    assert "127.0.0.1:1: Ray's head has not answered within 0 s" in capfd.readouterr().err
    assert not (tmp_path / "process-1.log").exists()
