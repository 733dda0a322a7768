"""The Ray engine on a real cluster of two nodes: the same bytes as the local one, also when a node
dies in the middle."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from data_tools import engines
from data_tools.build import build
from data_tools.document import DataError
from data_tools.engines import Engine, TaskError
from data_tools.recipe import Recipe
from jaxlm.errors import EnvironmentProblem
from jaxlm.schema import load
from tests.data_tools import test_engines as work
from tests.data_tools.test_kill import children, committed, finish, prepare, same
from tests.system import ray_nodes

pytest.importorskip("ray")

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.system, ray_nodes.FORKS]


@pytest.fixture
def nodes() -> "Iterator[Cluster]":
    with ray_nodes.cluster() as cluster:
        yield cluster


@pytest.fixture
def engine(nodes, tmp_path) -> Iterator[Engine]:
    engine = engines.cluster(nodes.address, tmp_path, memory_bytes=1 << 30)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    """The work directory of a build without Ray."""
    workdir = tmp_path_factory.mktemp("local")
    prepare(workdir)
    finish(workdir)
    return workdir


def kill_when(nodes: "Cluster", condition: Callable[[], bool]) -> threading.Thread:
    """Ends the second node with all its processes at once, as soon as the condition holds."""

    def kill() -> None:
        while not condition():
            time.sleep(0.01)
        node = nodes.list_all_nodes()[1]
        workers = children(node.all_processes["raylet"][0].process.pid)
        nodes.remove_node(node, allow_graceful=False)
        for pid in workers:  # without their raylet they would end, but only in a while
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def sleep(task: work.Touch) -> None:
    """Says on which node it is, and takes its time."""
    import ray

    work.note(task)
    task.path.with_suffix(".node").write_text(ray.get_runtime_context().get_node_id())
    time.sleep(0.5)
    work.touch(task)


def test_failures_are_as_on_one_machine(engine, tmp_path, capfd):
    engine.run(work.die_once, work.tasks(tmp_path, "one", "dies", "two"), "work")
    assert (tmp_path / "dies").exists() and work.attempts(tmp_path, "dies") == 2
    assert "work: partition dies: Ray: WorkerCrashedError: " in capfd.readouterr().err
    with pytest.raises(TaskError, match=r"(?s)2 partitions failed.*bad is bad.*bug failed 3 times"):
        engine.run(work.fail, work.tasks(tmp_path, "bad", "bug", "a"), "work")
    assert (tmp_path / "a").exists()
    with pytest.raises(DataError, match="MB1500: needs more than worker_memory_bytes=1073741824"):
        engine.run(work.hoard, work.tasks(tmp_path, "MB1500", "MB100"), "work")
    assert (tmp_path / "MB100").exists()


def test_a_node_that_dies_loses_no_task(nodes, engine, tmp_path, capfd):
    some = work.tasks(tmp_path, *(f"t{i}" for i in range(12)))
    victim = nodes.list_all_nodes()[1].node_id

    def in_the_middle() -> bool:
        begun = [t.path.with_suffix(".node") for t in some if not t.path.exists()]
        return any(path.exists() and path.read_text() == victim for path in begun)

    killer = kill_when(nodes, in_the_middle)
    engine.run(sleep, some, "work")
    killer.join()
    assert all(t.path.exists() for t in some)
    assert sum(work.attempts(tmp_path, t.name) for t in some) == len(some) + 1
    assert re.search(r"work: partition t\d+: Ray: .* trying again", capfd.readouterr().err)


def test_a_node_that_dies_in_the_middle_of_a_build_changes_no_byte(nodes, engine, tmp_path, local):
    prepare(tmp_path)
    killer = kill_when(nodes, lambda: committed(tmp_path, "stages/clean") >= 2)
    build(load(Recipe, tmp_path / "recipe.json"), tmp_path, engine)
    killer.join()
    same(tmp_path, local)
    assert outputs(tmp_path) == outputs(local)


def outputs(workdir: Path) -> dict[str, str]:
    """Committed file -> its sha256."""
    return {
        f"{path.parent.relative_to(workdir)}/{name}": output["sha256"]
        for path in workdir.glob("*/**/commit.json")
        for name, output in json.loads(path.read_text())["outputs"].items()
    }


def test_the_command(tmp_path, local):
    prepare(tmp_path)
    command = [sys.executable, "-m", "data_tools", "build", f"--config={tmp_path / 'recipe.json'}"]
    command += [f"--workdir={tmp_path.name}", "--engine=ray", "--ray-address=local"]
    done = subprocess.run(command, cwd=tmp_path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same(tmp_path, local)


def test_a_work_directory_that_nodes_do_not_share(nodes, tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    own = Path(f"/proc/self/fd/{descriptor}")  # another directory in another process
    try:
        with pytest.raises(EnvironmentProblem) as e:
            engines.cluster(nodes.address, own)
    finally:
        os.close(descriptor)
    address = nodes.list_all_nodes()[0].node_ip_address
    assert str(e.value) == (
        f"--workdir={own}: not the same directory on {address}, {address}; put it on a file "
        "system that all nodes of the cluster share, under the same path"
    )
    assert not list(tmp_path.iterdir())


def test_nodes_are_waited_for(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr("data_tools.engines.ray.PATIENCE_S", 1.0)
    engines.cluster(nodes.address, tmp_path, nodes=2).close()
    address = nodes.list_all_nodes()[0].node_ip_address
    with pytest.raises(EnvironmentProblem) as e:
        engines.cluster(nodes.address, tmp_path, nodes=3)
    assert str(e.value) == (
        f"--ray-nodes=3: 2 have joined within 1 s, {address}, {address}; see what Ray says on the "
        "others"
    )


def test_no_cluster_there(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    for address, why in ((free, "Connection refused"), ("nonsense", "nonsense")):
        with pytest.raises(
            EnvironmentProblem, match=rf"--ray-address={address}: no Ray cluster there .*{why}"
        ):
            engines.cluster(address, tmp_path)
