"""The processes of a run: start together, compare notes, wait for each other.

All of it goes through the coordinator's key-value store: nothing is compiled, no device is used,
and a time-out names what was waited for.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jax

# The store has no public name in JAX; Orbax and multihost_utils reach it the same way.
from jax._src import distributed

from jaxlm.activity import HERE
from jaxlm.errors import EnvironmentProblem, UserError

TIMEOUT_S = 300

_calls = itertools.count()


def start(coordinator: str | None, processes: int, process: int) -> None:
    """Joins the run; one process needs no coordinator."""
    if not 0 <= process < processes:
        raise UserError(
            f"--process={process} is not one of --processes={processes}, counted from 0"
        )
    if processes == 1:
        return
    if coordinator is None:
        raise UserError(f"--processes={processes} needs --coordinator=HOST:PORT")
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal()):
        raise UserError(f"--coordinator={coordinator}: write HOST:PORT")
    jax.distributed.initialize(coordinator, processes, process)


def gather(name: str, value: Any, timeout_s: int = TIMEOUT_S) -> list[Any]:
    """Each process's value (plain data), in the order of processes; a barrier of that name."""
    count, me = jax.process_count(), jax.process_index()
    if count == 1:
        return [value]
    key = f"jaxlm/{next(_calls)}/{name}"  # a key is written once; all make the same calls
    client = distributed.global_state.client
    assert client is not None
    client.key_value_set(f"{key}/{me}", json.dumps(value))
    values = []
    for i in range(count):
        try:
            with HERE.waiting(name):
                text = client.blocking_key_value_get(f"{key}/{i}", timeout_s * 1000)
        except jax.errors.JaxRuntimeError as e:
            raise EnvironmentProblem(
                f"process {i} of {count} did not reach {name!r} within {timeout_s} s; "
                "look at its log"
            ) from e
        values.append(json.loads(text))
    return values


def check_same(name: str, values: dict[str, str]) -> None:
    """Refuses a run whose processes differ in one of these."""
    everyone = gather(name, values)
    for key, process, other in _differences(everyone):
        raise EnvironmentProblem(
            f"processes differ in {key}: {everyone[0][key]} on process 0, {other} on process "
            f"{process}; use one version of the code, config and data on all hosts"
        )


def _differences(everyone: list[dict[str, str]]) -> Iterator[tuple[str, int, str]]:
    for process, values in enumerate(everyone):
        for key, value in values.items():
            if value != everyone[0].get(key):
                yield key, process, value
