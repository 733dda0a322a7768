"""The Ray engine on a real cluster of two nodes: the same bytes as the local one, also when a node
dies in the middle."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_tools import engines
from data_tools.build import build
from data_tools.document import DataError
from data_tools.engines import TaskError
from jaxlm.errors import EnvironmentProblem
from tests.data_tools import small, test_engines
from tests.data_tools.test_kill import committed, prepare, same

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.system


@pytest.fixture
def nodes() -> Iterator:
    """A cluster of two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1} | SMALL)
    cluster.add_node(num_cpus=1, **SMALL)
    yield cluster
    cluster.shutdown()


SMALL = {"object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture
def engine(nodes, tmp_path):
    engine = engines.cluster(nodes.address, tmp_path, memory_bytes=1 << 30)
    yield engine
    engine.close()


def test_x(nodes, engine, tmp_path):
    engine.run(test_engines.touch, test_engines.tasks(tmp_path, "a", "b"), "work")
