"""The launcher of ssh without a host: what it would run, and what it refuses."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.ssh import main, read

RUN = ("--config=c.py", "--workdir=/shared/runs/x")
OPTIONS = "-oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15 -oServerAliveCountMax=4"
PLAN = """\
ssh {options} -p2222 -- {name} 'cd /code || exit 78
export A=1
exec python3 -m launch host --once --tell --listen --coordinator=node1:{port} --processes=2 \
--process={process} --workdir=/shared/runs/x --logs=/shared/runs/x/logs -- --config=c.py --fallback'
"""


@pytest.fixture
def hosts(tmp_path) -> Path:
    path = tmp_path / "hosts.txt"
    path.write_text("node1\nroot@node2  # the other\n")
    return path


def test_the_plan(hosts, capsys):
    flags = ["--directory=/code", "--python=python3", "--setup=export A=1", "--ssh=-p2222"]
    assert main([f"--hosts={hosts}", *RUN, *flags, "--dry-run", "--", "--fallback"]) == 0
    values = {"options": OPTIONS, "port": 62_712}
    assert capsys.readouterr().out == "".join(
        PLAN.format(name=name, process=process, **values)
        for process, name in enumerate(("node1", "root@node2"))
    )


def test_a_shell_reads_the_words_that_were_given(tmp_path, capsys):
    (tmp_path / "hosts.txt").write_text("node1\n")
    words = ["--config=a b.py", "--config.x='$HOME' `id` \"q\""]
    odd = tmp_path / "it's $x"
    odd.mkdir()
    flags = [f"--hosts={tmp_path}/hosts.txt", f"--workdir={odd}", f"--directory={odd}"]
    python = "--python=/bin/echo"
    assert main([*flags, python, "--dry-run", *words]) == 0
    script = shlex.split(capsys.readouterr().out)[-1]
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.endswith(f"--workdir={odd} --logs={odd}/logs -- {' '.join(words)}\n")


def test_hosts_of_every_form(tmp_path):
    names = ["a", "me@b.example.com", "ssh://me@c:2222", "10.0.0.3", "ssh://[fe80::1]:22", "d_1"]
    (tmp_path / "hosts").write_text("\n".join([*names, "", "# none", "  "]))
    assert read(tmp_path / "hosts") == tuple(names)


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (None, [], "hosts.txt: cannot be read ("),
        ("", [], "hosts.txt: names no host; write one a line"),
        ("# a\n\n", [], "names no host"),
        ("a b", [], "hosts.txt:1: 'a b' is no host; write [user@]name"),
        ("a\n-oProxyCommand=x", [], "hosts.txt:2: '-oProxyCommand=x' is no host"),
        ("a;reboot", [], "'a;reboot' is no host"),
        ("a:22", [], "'a:22' is no host; write [user@]name, or ssh://[user@]name:PORT"),
        ("a\nb\na", [], "hosts.txt:3: a is there already, in line 1"),
        ("localhost\nb", [], "localhost: process 0 is there, and others cannot reach it"),
        ("ssh://127.0.0.1:2222\nb", [], "127.0.0.1: process 0 is there"),
        ("a\nb", ["--coordinator=[::1]"], "[::1]: process 0 is there"),
        ("a\nb", ["--coordinator=a:1"], "--coordinator=a:1: write the address alone"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(tmp_path, text, flags, said, capfd):
    path = tmp_path / "hosts.txt"
    if text is not None:
        path.write_text(text)
    assert main([f"--hosts={path}", f"--workdir={tmp_path}/run", *flags]) == 2
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_no_ssh_here(hosts, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([f"--hosts={hosts}", f"--workdir={tmp_path}/run", "--config=c"]) == 78
    assert capfd.readouterr().err == (
        "launch: ssh: is not installed; install an OpenSSH client; nor can be used: root@node2\n"
    )


def test_flags_of_processes_are_refused(hosts):
    done = subprocess.run(
        [sys.executable, "-m", "launch", "ssh", f"--hosts={hosts}", *RUN, "--processes=2"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "--processes differs from process to process" in done.stderr
