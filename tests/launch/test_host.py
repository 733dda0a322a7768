"""The launcher on each host: which process it is, and how it says what became of it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from launch import exits, jobset, machines, place
from launch.exits import Exit
from launch.host import main
from launch.job import Job, run
from launch.place import Place
from launch.process import Spec
from tests.launch.watch import until_text

TRAIN = ("--workdir=/w", "--config=c.py")


def train(argv: list[str], capsys) -> list[str]:
    """The flags of `jaxlm train` for these."""
    assert main(["--dry-run", *argv]) == 0
    return capsys.readouterr().out.split()[1:]


def test_the_place_by_flags(capsys):
    flags = ["--coordinator=a:1", "--bind=10.0.0.1", "--processes=4", "--process=2"]
    assert train([*flags, TRAIN[0], "--", *TRAIN[1:]], capsys) == [
        "-m",
        "jaxlm",
        "train",
        *TRAIN,
        *flags,
    ]
    assert train([*TRAIN], capsys) == ["-m", "jaxlm", "train", *TRAIN]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--processes=2"], "--processes=2 needs --coordinator=HOST:PORT"),
        (["--processes=2", "--process=2", "--coordinator=a:1"], "--process=2: --processes=2, coun"),
        (["--place=jobset", "--process=1"], "--place=jobset says what --coordinator and others"),
        (["--place=jobset"], "JAXLM_JOB_INDEX is not set"),
        (["--place=slurm"], "SLURM_PROCID is not set"),
        (["--place=moon"], "invalid choice: 'moon'"),
        (["--workdir=gs://user:secret@bucket/x"], "gs://...: was given with a user"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(argv, said, capfd):
    with pytest.raises(SystemExit) as e:
        main([*TRAIN, *argv])
    assert e.value.code == 2 and said in capfd.readouterr().err


def test_the_place_of_a_pod():
    """By what the manifest itself says."""
    target = machines.parse("v5p:4x4x8")
    job = jobset.Job("run-1", target, "image:1", "gs://b/run", TRAIN, slices=2)
    (replicated,) = jobset.manifest(job)["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value", "1") for entry in pod["env"]}
    found = place.of_jobset(env | {"JOB_COMPLETION_INDEX": "5"})
    assert found == Place(32 + 5, 64, env["JAXLM_COORDINATOR"])


@contextmanager
def metadata(**attributes: str) -> Iterator[dict[str, str]]:
    """Google's server of metadata, and the environment that names it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = attributes.get(self.path.rpartition("/attributes/")[2].replace("-", "_"))
            asked = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(404 if text is None else 200 if asked else 403)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}
        server.shutdown()
        thread.join()


OF_SLICE = {"agent_worker_number": "1", "worker_network_endpoints": "a:1:10.0.0.2,b:2:10.0.0.3"}


def test_the_place_of_a_tpu_vm():
    with metadata(**OF_SLICE, tpu_env="ZONE: 'x'\n") as env:
        assert place.of_tpu_vm(env) == Place(1, 2, f"10.0.0.2:{place.PORT}")
    slices = "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n"
    slices += "MEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1:8080'\n"
    hosts = {"agent_worker_number": "1", "worker_network_endpoints": "h0,h1"}
    with metadata(**hosts, tpu_env=slices) as env:
        assert place.of_tpu_vm(env) == Place(3, 4, f"10.9.0.1:{place.PORT}")
    with metadata() as env, pytest.raises(ValueError, match=r"404.*; is this a TPU VM\?"):
        place.of_tpu_vm(env)


# ---- a launcher of all hosts ---------------------------------------------------------------------

HOST = "import sys, time; sys.path.insert(0, '.'); from launch.exits import Exit; "


def of_all(tmp_path: Path, code: str, signaller: tuple[str, ...] = (), **more) -> Job:
    program = (sys.executable, "-u", "-c", HOST + code)
    spec = Spec(exits.OF_ALL, program, tmp_path / "logs/launcher.log", signaller)
    return Job(str(tmp_path), tmp_path / "logs", lambda: [spec], max_restarts=0, **more)


def said(index: int, status: int, stopped: bool = False) -> str:
    line = Exit(0.0, index, status, ("the last line",), stopped).line
    return f"sys.stdout.buffer.write({line!r}); sys.stdout.flush(); "


def test_an_exit_comes_over_a_line():
    exit_ = Exit(0.0, 3, -9, ("中文", "\x1e"), True)
    found = exits.told(exit_.line)
    assert found is not None and found.time > 0
    assert (found.index, found.status, found.tail, found.stopped) == (3, -9, exit_.tail, True)
    assert exits.told(b"step 3") is None
    assert exits.told(exit_.line[:20]) is None


def test_the_host_that_failed_first_is_shown_and_decides(tmp_path, capfd):
    code = said(1, 2) + "time.sleep(60)"  # the others hang
    start = time.monotonic()
    assert run(of_all(tmp_path, code, kill_grace_s=0.3)) == 2
    assert time.monotonic() - start < 30
    out, err = capfd.readouterr()
    assert "launch-exit" not in out
    lines = err.splitlines()
    assert lines[0].startswith("launch: process 1 ended with exit code 2 (wrong usage")
    assert lines[1:] == ["launch:   | the last line"]


def test_a_host_that_is_lost_is_a_reason_to_start_again(tmp_path, capfd):
    assert run(of_all(tmp_path, "sys.exit(1)")) == 75
    assert "the launcher of all hosts ended with exit code 1" in capfd.readouterr().err


def test_a_host_that_was_asked_to_stop_stops_all(tmp_path, capfd):
    mark = tmp_path / "queued"
    code = said(0, 75, stopped=True) + said(1, 75) + "sys.exit(75)"
    assert run(of_all(tmp_path, code, after_stop=("touch", str(mark)), leave_s=0.0)) == 75
    assert mark.exists() and "stopped as asked: touch" in capfd.readouterr().err


def test_one_that_a_second_signal_has_killed_is_started_again_later_too(tmp_path, capfd):
    mark = tmp_path / "queued"
    code = said(0, -10, stopped=True) + said(1, 75, stopped=True) + "sys.exit(75)"
    assert run(of_all(tmp_path, code, after_stop=("touch", str(mark)), leave_s=0.0)) == 75
    assert mark.exists() and "process 0 was killed by SIGUSR1" in capfd.readouterr().err


def test_signals_go_by_the_command_that_brings_them(tmp_path):
    """What it does not end, the program is told to: `srun` then kills all."""
    send = "import sys; open('sent', 'a').write(sys.argv[1] + '\\n')"
    signaller = (
        sys.executable,
        "-c",
        f"import os; os.chdir({str(tmp_path)!r}); {send}",
        "{signal}",
    )
    told = "import signal; signal.signal(15, lambda *_: (open('told', 'w'), sys.exit(9))); "
    code = f"import os; os.chdir({str(tmp_path)!r}); {told}" + said(0, 1) + "time.sleep(60)"
    assert run(of_all(tmp_path, code, kill_grace_s=0.2, signaller=signaller)) == 1
    assert (tmp_path / "sent").read_text().split() == ["TERM"]
    assert (tmp_path / "told").exists()


def test_what_it_hears_may_be_torn(tmp_path):
    """The connection is lost in the midst of a word: the process is asked to end all the same."""
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(75)); print('up')\nwhile 1: 0"
    job = "import sys; from pathlib import Path; from launch.job import *; w = Path(sys.argv[1]); "
    job += f"spec = Spec(0, (sys.executable, '-c', {code!r}), w / 'process-0.log'); "
    job += "sys.exit(run(Job(str(w), w, lambda: [spec], once=True, listens=True)))"
    command = [sys.executable, "-c", job, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        until_text(tmp_path / "process-0.log", "up\n")
        process.communicate(b"\xff\nNOSUCH\nTE", timeout=20)
    assert process.returncode == 75
