"""The engine of a Ray cluster: each attempt is a Ray task of one CPU.

Ray only carries tasks. Files stay in the work directory, which all nodes must see under one path;
retries are ours, so that a task is named whose node or process died.
"""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from data_tools.engines.queue import Attempt, Queue
from data_tools.engines.task import LIMITED, Failure, Task, TaskError, execute
from jaxlm.errors import EnvironmentProblem

IN_FLIGHT = 1_000
"""Attempts that Ray holds, running or waiting for a CPU: more would only make it slower."""
PATIENCE_S = 600.0
"""That a cluster may take to start, if it is known of how many nodes."""
_POLL_S = 0.5


class RayCluster:
    """Runs tasks on the nodes of a cluster, as many at once as it has CPUs."""

    def __init__(self, address: str, workdir: Path, memory_bytes: int = 0, nodes: int = 0):
        """`address`: as of `ray.init`; "auto": the cluster of this machine, "local": a new one.
        `nodes`: that are waited for; 0: it is there already, as it is.

        Raises `EnvironmentProblem` without a cluster there, or when a node does not see `workdir`.
        """
        give_up_at = time.monotonic() + (PATIENCE_S if nodes else 0)
        self._memory_bytes = memory_bytes
        if address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        try:
            _knock(address, give_up_at)
            environment = {"env_vars": LIMITED} if memory_bytes else None
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=environment,
            )
        except (OSError, ValueError) as e:
            raise EnvironmentProblem(
                f"--ray-address={address}: no Ray cluster there ({e}); start one (ray start "
                "--head), or use --ray-address=local, which starts one on this machine"
            ) from e
        self._execute = ray.remote(num_cpus=1, max_retries=0)(execute)
        try:
            _gather(nodes, give_up_at)
            _check_shared(workdir)
        except BaseException:
            self.close()
            raise

    def run[T: Task](self, function: Callable[[T], None], tasks: Sequence[T], label: str) -> None:
        """See `Engine.run`."""
        running: dict[Any, Attempt[T]] = {}
        with Queue(tasks, label) as queue:
            while queue or running:
                while queue and len(running) < IN_FLIGHT:
                    attempt = queue.next()
                    ref = self._execute.remote(function, attempt.task, self._memory_bytes)
                    running[ref] = attempt
                (ref, *_), _ = ray.wait(list(running))
                try:
                    failure = ray.get(ref)
                except RayError as e:  # its worker or node died, as a rule
                    message = f"Ray: {type(e).__name__}: {' '.join(str(e).split())}"
                    failure = Failure(TaskError, message, again=True)
                queue.ended(running.pop(ref), failure)

    def close(self) -> None:
        """Leaves the cluster, which ends what still runs there for this build."""
        ray.shutdown()


def _knock(address: str, give_up_at: float) -> None:
    """Ray itself waits for minutes where nobody answers."""
    host, _, port = address.rpartition(":")
    while port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
            return
        except OSError:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_POLL_S)


def _alive() -> dict[str, str]:
    """Node -> its address."""
    return {n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]}


def _gather(nodes: int, give_up_at: float) -> None:
    while len(there := _alive()) < nodes:
        if time.monotonic() >= give_up_at:
            raise EnvironmentProblem(
                f"--ray-nodes={nodes}: {len(there)} have joined within {PATIENCE_S:.0f} s, "
                f"{', '.join(sorted(there.values()))}; see what Ray says on the others"
            )
        time.sleep(_POLL_S)


def _check_shared(workdir: Path) -> None:
    """Every node must be able to read what this process writes into the work directory."""
    probe = workdir / f".shared-{uuid.uuid4().hex}"
    sees = ray.remote(num_cpus=0, max_retries=0)(Path.exists)
    nodes = _alive()
    probe.touch()
    try:
        answers = {
            node: sees.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(probe)
            for node in nodes
        }
        blind = sorted(nodes[node] for node, answer in answers.items() if not ray.get(answer))
    finally:
        probe.unlink()
    if blind:
        raise EnvironmentProblem(
            f"--workdir={workdir}: not the same directory on {', '.join(blind)}; put it on a file "
            "system that all nodes of the cluster share, under the same path"
        )
