"""A work directory on a disk: names that cannot be used, and that one run alone has it."""

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jaxlm import site, terminal
from jaxlm.errors import EnvironmentProblem, UserError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ENDING_S", 0.3)
    monkeypatch.setattr(site, "DEAD_S", 1.5)


def told_nothing(why: str) -> None:
    raise AssertionError(why)


@pytest.mark.parametrize("name", ["runs/[a]", "a*b", "a\\b", "a]"])
def test_a_name_that_orbax_takes_for_a_pattern_is_refused(name):
    """Checkpoints would be saved there, and not found again."""
    with pytest.raises(UserError, match="which Orbax takes for a pattern; rename it"):
        site.of(name)


def test_a_directory_above_counts_too(tmp_path, monkeypatch):
    (tmp_path / "[team]").mkdir()
    monkeypatch.chdir(tmp_path / "[team]")
    with pytest.raises(UserError, match=r"has the character \["):
        site.of("run")


def test_other_names_are_taken_as_they_are():
    for name in ("runs/a", "中文 目录", "a?b#c%20{d}~", "/x/'q\"", "run~"):
        assert site.of(name) == Path(name)


def test_a_home_is_what_a_shell_would_make_of_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert site.of("~/runs/a") == Path("/home/somebody/runs/a")
    with pytest.raises(UserError, match="write the whole path"):
        site.of("~no-such-user/a")


def test_what_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(EnvironmentProblem, match=f"{name}: cannot be written .it is a file"):
            site.check_writable(tmp_path / name)


def test_another_host_sees_what_was_written_for_it_until_all_have_looked(tmp_path):
    with site.probe(tmp_path / "a" / "run") as name, site.probe(tmp_path / "a" / "run") as other:
        assert name != other
        assert site.sees(tmp_path / "a" / "run", name, within_s=0.0)
        assert not site.sees(tmp_path / "own", name, within_s=0.5)
    assert not list((tmp_path / "a" / "run").iterdir()) and not (tmp_path / "own").exists()


def test_it_may_take_a_while_to_be_seen(tmp_path):
    timer = threading.Timer(
        0.5, lambda: [(tmp_path / "late").mkdir(), (tmp_path / "late/x").touch()]
    )
    timer.start()
    assert site.sees(tmp_path / "late", "x", within_s=30.0)
    timer.join()


def test_who_has_the_lock_deletes_what_killed_processes_have_left(tmp_path):
    for name, age_s in (("old", site.PROBE_S + 60), ("young", 0)):
        path = tmp_path / f".probe-{name}"
        path.touch()
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    with site.lock(tmp_path, told_nothing):
        assert {p.name for p in tmp_path.iterdir()} == {".probe-young", "lock"}


def test_a_lock_that_was_deleted_is_noticed(tmp_path):
    lost: list[str] = []
    with site.lock(tmp_path, lost.append) as ensure:
        ensure()
        (tmp_path / "lock").unlink()
        with pytest.raises(EnvironmentProblem, match="was deleted or replaced"):
            ensure()
        with site.lock(tmp_path, told_nothing) as other:
            other()
            with pytest.raises(EnvironmentProblem, match="was deleted or replaced"):
                ensure()
    assert len(lost) == 2


def test_a_lock_that_goes_while_it_is_taken_is_taken_anew(tmp_path, monkeypatch):
    flock, taken = fcntl.flock, []

    def slow(file, how: int) -> None:
        if not taken:
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
        taken.append(how)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with site.lock(tmp_path, told_nothing) as ensure:
        ensure()
    assert len(taken) == 2


def test_who_holds_it_is_named(tmp_path):
    with site.lock(tmp_path, told_nothing):
        assert site.holder(tmp_path) == os.getpid()
        message = f"pid {os.getpid()} on {socket.gethostname()} is training there; wait for it"
        with pytest.raises(EnvironmentProblem, match=message), site.lock(tmp_path, told_nothing):
            pass
    assert site.holder(tmp_path) is None


def test_a_host_elsewhere_may_be_dead_and_its_lock_alive_for_a_while(tmp_path, monkeypatch):
    """As a server of NFS keeps it."""
    monkeypatch.setattr(site, "DEAD_S", 60.0)
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write('7 elsewhere'); file.flush(); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        let_go, said = holder.stdin.close, []
        monkeypatch.setattr(terminal, "show", lambda line, _: (said.append(line), let_go()))
        with site.lock(tmp_path, told_nothing) as ensure:
            ensure()
            assert site.holder(tmp_path) == os.getpid()
    assert len(said) == 1 and "is held by pid 7 on elsewhere; waiting to see" in said[0]


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def none(file, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    with (
        pytest.raises(EnvironmentProblem, match=r"cannot keep a second run out .Function not"),
        site.lock(tmp_path, told_nothing),
    ):
        pass
    assert site.holder(tmp_path) is None
