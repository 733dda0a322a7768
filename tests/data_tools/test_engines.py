"""Engines: all tasks run, failures are tried again, and what fails for good is named in the end."""

import errno
import multiprocessing
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_tools.document import DataError
from data_tools.engines import ATTEMPTS, InProcess, TaskError, WorkerPool, cluster, local
from data_tools.engines.local import _work
from data_tools.engines.progress import Progress
from jaxlm.data.tokenizer import TokenizerError
from jaxlm.errors import EnvironmentProblem


@dataclass(frozen=True)
class Touch:
    """A task that is done once its file is there."""

    path: Path
    bytes: int = 1

    @property
    def name(self) -> str:
        return self.path.name


def tasks(root: Path, *names: str) -> list[Touch]:
    return [Touch(root / name) for name in names]


def touch(task: Touch) -> None:
    task.path.touch()


def note(task: Touch) -> int:
    """The number of this attempt."""
    with task.path.with_suffix(".tried").open("a") as f:
        f.write("x")
        return f.tell()


def die_once(task: Touch) -> None:
    if "dies" in task.name and note(task) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    touch(task)


def die(task: Touch) -> None:
    note(task)
    os.kill(os.getpid(), signal.SIGKILL)


def fail_once(task: Touch) -> None:
    if note(task) == 1:
        raise KeyError("a passing fault")
    touch(task)


def fail(task: Touch) -> None:
    """By name: a bug, bad data, a full disk; anything else is well."""
    match task.name.rstrip("0123456789"):
        case "bug":
            note(task)
            raise KeyError(f"no {task.name}")
        case "bad":
            note(task)
            raise TokenizerError(f"{task.name} is bad")
        case "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "records":
            raise RuntimeError(f"writer: {os.strerror(errno.ENOSPC)}")
        case "readonly":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/w/stages")
        case "denied":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/w/stages")
        case "thread":
            raise OSError("Failed to launch worker thread")
        case "again":
            raise RuntimeError(os.strerror(errno.EAGAIN))
    touch(task)


def hoard(task: Touch) -> None:
    """Takes as many MB as its name says."""
    note(task)
    held = bytearray(int(task.name.removeprefix("MB")) << 20)
    task.path.write_text(str(len(held)))


def sleep_or_fill(task: Touch) -> None:
    if task.name == "sleeps":
        task.path.with_suffix(f".{os.getpid()}").touch()
        time.sleep(60)
    while not list(task.path.parent.glob("sleeps.*")):
        time.sleep(0.01)
    fail(task)


@pytest.fixture(params=[1, 2])
def engine(request):
    engine = local(request.param)
    assert isinstance(engine, InProcess if request.param == 1 else WorkerPool)
    yield engine
    engine.close()


@pytest.fixture
def pool():
    with WorkerPool(2) as pool:
        yield pool


def attempts(root: Path, name: str) -> int:
    return len((root / f"{name}.tried").read_text())


def test_every_task_runs_once_and_workers_stay(tmp_path, engine):
    for stage in ("a", "b"):
        some = tasks(tmp_path, *(f"{stage}{i}" for i in range(7)))
        engine.run(touch, some, stage)
        assert all(t.path.exists() for t in some)
    engine.run(touch, [], "none")


# ---- failures ------------------------------------------------------------------------------------


def test_a_passing_fault_is_tried_again(tmp_path, engine, capfd):
    engine.run(fail_once, tasks(tmp_path, "a", "b"), "work")
    assert (tmp_path / "a").exists() and attempts(tmp_path, "a") == 2
    assert "work: partition a: KeyError: 'a passing fault'; trying again" in capfd.readouterr().err


def test_a_bug_names_the_task_and_shows_where(tmp_path, engine):
    with pytest.raises(TaskError, match=r"(?s)^work: partition bug failed 3 times:.*no bug"):
        engine.run(fail, tasks(tmp_path, "bug"), "work")
    assert attempts(tmp_path, "bug") == ATTEMPTS


def test_bad_data_names_the_task_without_a_traceback_and_is_not_tried_again(tmp_path, engine):
    with pytest.raises(DataError) as e:
        engine.run(fail, tasks(tmp_path, "bad"), "work")
    assert str(e.value) == "work: partition bad: bad is bad"
    assert attempts(tmp_path, "bad") == 1


def test_the_others_run_and_all_failures_are_told_together(tmp_path, engine):
    names = [f"bad{i}" for i in range(7)] + ["a", "b", "c"]
    with pytest.raises(DataError) as e:
        engine.run(fail, tasks(tmp_path, *names), "work")
    assert str(e.value).splitlines() == [
        "work: 7 partitions failed, all others are done",
        *(f"work: partition bad{i}: bad{i} is bad" for i in range(5)),
        "and bad5, bad6",
    ]
    assert all((tmp_path / n).exists() for n in "abc")


def test_one_fault_of_the_code_among_bad_data_is_a_fault_of_the_code(tmp_path, engine):
    with pytest.raises(TaskError, match=r"(?s)2 partitions failed.*bad is bad.*bug failed 3 times"):
        engine.run(fail, tasks(tmp_path, "bad", "bug"), "work")


def test_a_full_disk_is_no_bug_and_ends_it_at_once(tmp_path, engine):
    with pytest.raises(EnvironmentProblem) as e:
        engine.run(fail, tasks(tmp_path, "full"), "work")
    assert str(e.value) == (
        "work: partition full: [Errno 28] No space left on device; make room, then start again"
    )
    with pytest.raises(EnvironmentProblem):
        InProcess().run(fail, tasks(tmp_path, "full", "after"), "work")
    assert not (tmp_path / "after").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("records", "writer: No space left on device; make room, then start again"),
        (
            "readonly",
            "[Errno 30] Read-only file system: '/w/stages'; let this user read and write there, "
            "then start again",
        ),
        (
            "denied",
            "[Errno 13] Permission denied: '/w/stages'; let this user read and write there, then "
            "start again",
        ),
    ],
)
def test_a_place_that_takes_nothing_ends_it_at_once(tmp_path, engine, name, words):
    with pytest.raises(EnvironmentProblem) as e:
        engine.run(fail, tasks(tmp_path, name), "work")
    assert str(e.value) == f"work: partition {name}: {words}"


# ---- workers that die ----------------------------------------------------------------------------


def test_a_dead_worker_is_replaced_and_its_task_run_again(tmp_path, pool, capfd):
    some = tasks(tmp_path, "one", "dies", "two", "three")
    pool.run(die_once, some, "work")
    assert all(t.path.exists() for t in some) and attempts(tmp_path, "dies") == 2
    assert "work: partition dies: its worker died (SIGKILL" in capfd.readouterr().err


def test_a_worker_that_dies_idle_is_replaced(tmp_path, pool):
    pool.run(touch, tasks(tmp_path, "a", "b"), "work")
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
    pool.run(touch, tasks(tmp_path, *"cde"), "work")
    assert (tmp_path / "e").exists()


def test_ctrl_c_finds_a_worker_deaf_from_its_first_moment_on(tmp_path, pool, capfd):
    """Or it would end in its imports, with a traceback."""
    pool._start(2)
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGINT)
    pool.run(touch, tasks(tmp_path, "a", "b"), "work")
    assert (tmp_path / "b").exists() and capfd.readouterr().err == ""


def test_a_task_that_always_kills_is_given_up_by_name(tmp_path, pool):
    with pytest.raises(TaskError) as e:
        pool.run(die, tasks(tmp_path, "bad"), "work")
    assert str(e.value) == (
        "work: partition bad failed 3 times:\nits worker died (SIGKILL: most often out of memory; "
        "use fewer workers or smaller partition_bytes)"
    )
    assert attempts(tmp_path, "bad") == ATTEMPTS


def test_close_ends_a_worker_in_the_middle_of_a_task(tmp_path):
    pool = WorkerPool(2)
    with pytest.raises(EnvironmentProblem):
        pool.run(sleep_or_fill, tasks(tmp_path, "sleeps", "full"), "work")
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 20
    (mark,) = tmp_path.glob("sleeps.*")
    assert not Path(f"/proc/{mark.suffix[1:]}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what is mapped for data")
def test_a_worker_has_its_memory_and_no_more(tmp_path):
    engine = local(1, 300 << 20)
    try:
        engine.run(hoard, tasks(tmp_path, "MB250"), "work")
        with pytest.raises(DataError) as e:
            engine.run(hoard, tasks(tmp_path, "MB400", "MB200"), "work")
    finally:
        engine.close()
    assert str(e.value) == (
        "work: partition MB400: needs more than worker_memory_bytes=314572800; raise it, or make "
        "partition_bytes smaller"
    )
    assert attempts(tmp_path, "MB400") == 1
    assert (tmp_path / "MB200").read_text() == str(200 << 20)


@pytest.mark.parametrize("name", ["thread", "again"])
def test_no_room_for_a_thread_is_out_of_memory_under_a_limit(tmp_path, name):
    engine = local(1, 300 << 20)
    try:
        with pytest.raises(DataError, match="needs more than worker_memory_bytes=314572800"):
            engine.run(fail, tasks(tmp_path, name), "work")
    finally:
        engine.close()
    with pytest.raises(TaskError, match="failed 3 times"):
        InProcess().run(fail, tasks(tmp_path, name), "work")


def test_a_worker_whose_parent_is_gone_ends_quietly(tmp_path, capfd):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,))
    process.start()
    theirs.close()
    ours.send((touch, *tasks(tmp_path, "a"), 0))
    assert ours.poll(60)
    ours.close()  # its answer unread: the worker finds the connection reset
    process.join(60)
    assert process.exitcode == 0
    assert capfd.readouterr().err == ""


def test_without_ray_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentProblem) as e:
        cluster("auto", tmp_path)
    assert str(e.value) == "--engine=ray: Ray is not installed; pip install 'jaxlm[ray]'"


# ---- progress ------------------------------------------------------------------------------------


def test_progress_tells_rate_and_time_left():
    progress = Progress("clean", 4, 400_000_000)
    progress.update(100_000_000)
    assert progress.line(50) == "clean: 1 of 4 partitions, 100 of 400 MB, 2.0 MB/s, 2 min left"
    progress.close()


def test_away_from_a_terminal_a_line_a_minute(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("data_tools.engines.progress.SECONDS", 0)
    InProcess().run(touch, tasks(tmp_path, "a", "b"), "work")
    first, second = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"work: 1 of 2 partitions, 0 of 0 MB, \d+\.\d MB/s, 0 min left", first)
    assert second.startswith("work: 2 of 2 partitions")
