"""A Ray cluster of two nodes on this machine."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

FORKS = pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")
"""For tests that start one. Ray forks to start its processes; they exec at once, so that JAX, where
an earlier test has loaded it here, is not used in them."""

_NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@contextlib.contextmanager
def cluster() -> "Iterator[Cluster]":
    """Two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args=_NODE | {"include_dashboard": False})
    try:
        nodes.add_node(**_NODE)
        yield nodes
    finally:
        nodes.shutdown()
