"""`python -m launch ssh` over real sshds of this machine."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import runs
from jaxlm import workdir as workdirs
from launch import foreground
from tests.launch.watch import is_gone, until
from tests.system import sshd

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in Linux's /proc"),
]


@pytest.fixture(scope="module")
def ssh(tmp_path_factory) -> Iterator[list[str]]:
    """Flags of the launcher: two hosts, and how they are reached."""
    root = tmp_path_factory.mktemp("ssh") / "root"
    with sshd.hosts(root, 2) as names:
        (root / "hosts.txt").write_text(f"# of a test\n{names[0]}\n\n{names[1]}  # the other\n")
        env = runs.environment(devices=1)["XLA_FLAGS"]
        setup = [f"--setup=export XLA_FLAGS={shlex.quote(env)}"]
        yield [f"--hosts={root}/hosts.txt", *setup, *(f"--ssh={f}" for f in sshd.flags(root))]


@pytest.fixture(scope="module")
def local(config, tmp_path_factory) -> Path:
    """Work directory of a run of two processes that nothing disturbed."""
    workdir = tmp_path_factory.mktemp("local") / "run"
    code, output = runs.finish(runs.launch(config, workdir), workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


def command(ssh: list[str], config: Path, workdir: Path, *more: str) -> list[str]:
    overrides = [f"--config.{override}" for override in (runs.SLOWLY, *more)]
    place = [f"--config={config}", f"--workdir={workdir}"]
    return [sys.executable, "-m", "launch", "ssh", *ssh, *place, *overrides]


def trainers(workdir: Path) -> dict[int, int]:
    """Number of each process of a run that is there -> its pid."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if words[1:4] == ["-m", "jaxlm", "train"] and f"--workdir={workdir}" in words:
            found |= {
                int(w.removeprefix("--process=")): int(path.parent.name)
                for w in words
                if w.startswith("--process=")
            }
    return found


def ask(action: str, workdir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "launch", "ssh", action, f"--workdir={workdir}", *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=runs.PATIENCE_S)


def test_a_run_survives_what_happens_to_its_hosts(ssh, config, local, tmp_path):
    """A killed process, a lost connection, a killed launcher: the same parameters in the end."""
    workdir, log = tmp_path / "it's a run", tmp_path / "log"

    def trains(start: int) -> bool:
        """Whether this start, counted from 1, has saved."""
        steps = [s.step for s in workdirs.history(workdir)] if workdir.exists() else []
        return len(steps) == start and max(runs.committed(workdir), default=0) > steps[-1]

    with runs.running(command(ssh, config, workdir), log) as launcher:
        runs.wait_until(lambda: trains(1), launcher)
        other = trainers(workdir)
        os.kill(other[1], signal.SIGKILL)
        until(lambda: is_gone(other[0]), 20)
        runs.wait_until(lambda: trains(2), launcher)
        connections = [pid for pid in runs.children(launcher.pid) if b"ssh" in name_of(pid)]
        os.kill(connections[1], signal.SIGKILL)
        runs.wait_until(lambda: log.read_text().count("starting again in") == 2, launcher)
        runs.wait_until(lambda: trains(3), launcher)
        left = trainers(workdir).values()
        launcher.kill()
        for pid in left:
            until(lambda pid=pid: is_gone(pid), 60)
    said = re.findall(r"^launch: .*", log.read_text(), re.M)
    assert said[0].startswith("launch: process 1 was killed by SIGKILL; its log is")
    assert any(line.startswith("launch: the launcher of process 1 was killed") for line in said)
    code, output = runs.finish(command(ssh, config, workdir), log)
    assert code == 0, output
    assert [s.processes for s in workdirs.history(workdir)] == [2, 2, 2, 2]
    runs.assert_same(runs.state(workdir), runs.state(local))


def name_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/comm").read_bytes()


def test_it_is_looked_at_and_stopped_from_elsewhere(ssh, config, tmp_path):
    workdir, log = tmp_path / "run", tmp_path / "log"
    assert "no launcher runs it" in ask("stop", workdir).stderr
    with runs.running(command(ssh, config, workdir), log) as launcher:
        runs.wait_until(lambda: len(runs.committed(workdir)) >= 1, launcher)
        second = subprocess.run(command(ssh, config, workdir), capture_output=True, text=True)
        assert second.returncode == 2 and "is running this already; stop it first" in second.stderr
        assert f"process {launcher.pid} on " in ask("status", workdir).stdout
        assert "step " in ask("logs", workdir, "--lines=99").stdout
        stopped = ask("stop", workdir)
        assert stopped.returncode == 0, stopped.stderr
        assert launcher.wait(runs.PATIENCE_S) == 75
    assert "stopped as asked; the same command goes on from there" in log.read_text()
    assert workdirs.status(workdir)["saved"] > 0
    assert not trainers(workdir)
    assert "no launcher runs" in ask("status", workdir).stdout
    assert (workdir / "logs" / foreground.LOCK).exists()


def test_a_host_that_fails_its_checks_stops_all_and_is_shown_first(ssh, config, tmp_path):
    """The second has not mounted the corpus."""
    hosts = Path(ssh[0].partition("=")[2]).read_text()
    ports = re.findall(r"127\.0\.0\.1:(\d+)", hosts)
    elsewhere = f'--setup=test "${{SSH_CONNECTION##* }}" != {ports[1]} || cd /'
    here = (f"--directory={tmp_path}", elsewhere)
    runs.corpus(tmp_path / "data")
    own = command(ssh, config, tmp_path / "run", "data.manifest=data/manifest.json")
    start = time.monotonic()
    done = subprocess.run([*own, *here], capture_output=True, text=True)
    assert done.returncode == 78
    assert time.monotonic() - start < 30
    first, why, *_ = done.stderr.splitlines()
    assert re.match(r"launch: process [01] ended with exit code 78 \(wrong environment\)", first)
    assert "/data/manifest.json: no such manifest" in why and "process 1 (" in why
    assert "starting again" not in done.stderr and not trainers(tmp_path / "run")


def test_a_host_that_cannot_be_used_is_told_before_anything_starts(ssh, config, tmp_path):
    hosts = Path(ssh[0].partition("=")[2])
    more = tmp_path / "hosts.txt"
    more.write_text(f"{hosts.read_text()}ssh://127.0.0.1:1\n")
    for flags, said in (
        ([f"--hosts={more}"], "Connection refused; can it be reached by ssh?"),
        (["--directory=/nowhere"], "/nowhere: No such file or directory; the code and its Python"),
        (["--python=/no/python"], "/no/python: No such file or directory; the code and its"),
        (
            ["--directory=/", f"--python={sys._base_executable}"],
            "No module named launch; is the project's code there? --directory",
        ),
        (["--ssh=-lnobody-here"], "Permission denied"),
    ):
        done = subprocess.run(
            [*command(ssh, config, tmp_path / "run"), *flags], capture_output=True, text=True
        )
        assert done.returncode == 78, done.stderr
        assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "run").exists()
