"""Engines: all tasks run, a dead worker is replaced, a failure names its task."""

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from data_tools.document import DataError
from data_tools.engines import ATTEMPTS, InProcess, TaskError, WorkerPool, local
from jaxlm.data.tokenizer import TokenizerError
from jaxlm.errors import EnvironmentProblem


def touch(path: Path) -> None:
    path.touch()


def die_once(path: Path) -> None:
    """Kills its worker the first time that it sees `path`."""
    if "dies" in path.name and not path.with_suffix(".tried").exists():
        path.with_suffix(".tried").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    path.touch()


def die(path: Path) -> None:
    with path.with_suffix(".tried").open("a") as f:
        f.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def fail(path: Path) -> None:
    raise KeyError(f"no {path.name}")


def refuse(path: Path) -> None:
    raise TokenizerError(f"{path.name} is bad")


def fill(path: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sleep(path: Path) -> None:
    path.with_suffix(f".{os.getpid()}").touch()
    time.sleep(60)


def name(path: Path) -> str:
    return path.name


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


def test_every_task_runs_once_and_workers_stay(tmp_path, engine):
    for stage in ("a", "b"):
        tasks = [tmp_path / f"{stage}{i}" for i in range(7)]
        engine.run(touch, tasks, stage, name)
        assert all(t.exists() for t in tasks)
    engine.run(touch, [], "none", name)


def test_a_bug_names_the_task_and_shows_where(tmp_path, engine):
    with pytest.raises(TaskError, match=r"(?s)work: partition a failed.*no a"):
        engine.run(fail, [tmp_path / "a"], "work", name)


def test_a_full_disk_is_no_bug(tmp_path, engine):
    with pytest.raises(EnvironmentProblem) as e:
        engine.run(fill, [tmp_path / "a"], "work", name)
    assert str(e.value) == (
        "work: partition a: [Errno 28] No space left on device; make room, then start again"
    )


def test_bad_data_names_the_task_without_a_traceback(tmp_path, engine):
    with pytest.raises(DataError) as e:
        engine.run(refuse, [tmp_path / "a"], "work", name)
    assert str(e.value) == "work: partition a: a is bad"


def test_a_dead_worker_is_replaced_and_its_task_run_again(tmp_path, pool):
    tasks = [tmp_path / n for n in ("one", "dies", "two", "three")]
    pool.run(die_once, tasks, "work", name)
    assert all(t.exists() for t in tasks) and (tmp_path / "dies.tried").exists()


def test_a_worker_that_dies_idle_is_replaced(tmp_path, pool):
    pool.run(touch, [tmp_path / "a", tmp_path / "b"], "work", name)
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
    pool.run(touch, [tmp_path / n for n in "cde"], "work", name)
    assert (tmp_path / "e").exists()


def test_a_task_that_always_kills_is_given_up_by_name(tmp_path, pool):
    with pytest.raises(TaskError, match=r"work: partition bad killed its worker 3 .*SIGKILL"):
        pool.run(die, [tmp_path / "bad"], "work", name)
    assert len((tmp_path / "bad.tried").read_text()) == ATTEMPTS


def test_close_ends_a_worker_in_the_middle_of_a_task(tmp_path):
    pool = WorkerPool(2)
    with pytest.raises(DataError):
        pool.run(one_sleeps, [tmp_path / "sleeps", tmp_path / "bad"], "work", name)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 5
    (mark,) = tmp_path.glob("sleeps.*")
    assert not Path(f"/proc/{mark.suffix[1:]}").exists()


def one_sleeps(path: Path) -> None:
    if path.name == "sleeps":
        sleep(path)
    while not list(path.parent.glob("sleeps.*")):
        time.sleep(0.01)
    refuse(path)
