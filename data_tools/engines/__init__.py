"""Where tasks run: in this process, in worker processes of this machine, or on a Ray cluster.

An engine runs a function on tasks in any order, tries again what failed, shows progress, and names
the tasks that fail for good. Tasks commit their own results (`stage.run_task`), so an engine
returns nothing, and the result does not depend on which one it is.
"""

import importlib.util
from pathlib import Path

from data_tools.engines.local import InProcess, WorkerPool
from data_tools.engines.task import ATTEMPTS, Engine, TaskError
from jaxlm.errors import EnvironmentProblem

__all__ = ["ATTEMPTS", "Engine", "InProcess", "TaskError", "WorkerPool", "cluster", "local"]


def local(workers: int, memory_bytes: int = 0) -> Engine:
    """The engine of one machine; `memory_bytes` is the limit of a worker, 0: none.

    One worker without a limit is this process itself, which a debugger can enter.
    """
    return InProcess() if workers == 1 and not memory_bytes else WorkerPool(workers, memory_bytes)


def cluster(address: str, workdir: Path, memory_bytes: int = 0, nodes: int = 0) -> Engine:
    """The engine of a Ray cluster, see `ray.RayCluster`; `EnvironmentProblem` without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise EnvironmentProblem("--engine=ray: Ray is not installed; pip install 'jaxlm[ray]'")
    from data_tools.engines.ray import RayCluster  # heavy, and an optional dependency

    return RayCluster(address, workdir, memory_bytes, nodes)
