"""The processes of a run: start together, compare notes, wait for each other.

All of it goes through the coordinator's key-value store: nothing is compiled, no device is used,
and a time-out names who was waited for.
"""

import itertools
import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

# The store has no public name in JAX; Orbax and multihost_utils reach it the same way.
from jax._src import distributed

from jaxlm import rollcall
from jaxlm.activity import HERE
from jaxlm.errors import PeerMissing, UserError, as_told, told
from jaxlm.safety import WatchConfig

_calls = itertools.count()


class Members(NamedTuple):
    """Who takes part, and how long they wait for each other."""

    hosts: list[str]
    """Of each process."""
    barrier_s: float
    restore_s: float
    save_s: float


def _members_of(hosts: list[str], cfg: WatchConfig) -> Members:
    barrier, restore, save = cfg.barrier_minutes, cfg.restore_minutes, cfg.save_minutes
    return Members(hosts, 60 * barrier, 60 * max(barrier, restore), 60 * max(barrier, save))


_members = _members_of([""], WatchConfig())


def start(
    coordinator: str | None, processes: int, process: int, bind: str | None, cfg: WatchConfig
) -> None:
    """Joins the run; one process needs no coordinator.

    `bind`: the address at which the coordinator, process 0, listens; None is all of them. Raises
    `PeerMissing` with the processes that have not come, after `watch.barrier_minutes`.
    """
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
    wait_s = 60 * cfg.barrier_minutes
    if process == 0:
        hosts = rollcall.hold(rollcall.listen(bind, int(port)), processes, wait_s)
    else:
        hosts = rollcall.call(host.strip("[]"), int(port), process, processes, wait_s)
    # It would take SIGTERM from us; what it is for rides our steps.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator,
        processes,
        process,
        # It would give a process one device of its node under Slurm and Open MPI.
        cluster_detection_method="deactivate",
        initialization_timeout=round(wait_s) + 1,
        # The watchdog comes first, and says more. JAX's heart beats once in half of this.
        heartbeat_timeout_seconds=round(3 * cfg.heartbeat_seconds) + 15,
        shutdown_timeout_seconds=round(cfg.heartbeat_seconds) + 1,
        coordinator_bind_address=None if bind is None else f"{_bracketed(bind)}:{port}",
    )
    global _members
    _members = _members_of(hosts, cfg)


def place() -> tuple[int, int]:
    """Which process this is, of how many; known before JAX looks for devices, which may hang."""
    return distributed.global_state.process_id, len(_members.hosts)


def name(process: int) -> str:
    """A process and its host."""
    hosts = _members.hosts
    known = process < len(hosts) and hosts[process]
    return f"process {process} ({hosts[process]})" if known else f"process {process}"


def restore_s() -> int:
    """Whole seconds that processes wait for each other where each reads its share."""
    return math.ceil(_members.restore_s)


def save_s() -> int:
    """Whole seconds that processes wait for each other where each writes its share."""
    return math.ceil(_members.save_s)


def key_values() -> Any:
    """The client of the key-value store; only where there are several processes."""
    client = distributed.global_state.client
    assert client is not None
    return client


def gather(what: str, value: Any, wait_s: float | None = None) -> list[Any]:
    """Each process's value (plain data), in the order of processes; a barrier of that name.

    `PeerMissing` with those that have not come after `wait_s`, or else `watch.barrier_minutes`.
    """
    me, count = place()
    if count == 1:
        return [value]
    wait_s = _members.barrier_s if wait_s is None else wait_s
    key = f"jaxlm/{next(_calls)}/{what}"  # a key is written once; all make the same calls
    client = key_values()
    client.key_value_set(f"{key}/{me}", json.dumps(value))
    deadline, values = time.monotonic() + wait_s, []
    with HERE.waiting(what):
        for i in range(count):
            left_ms = max(round(1000 * (deadline - time.monotonic())), 1)
            try:
                values.append(json.loads(client.blocking_key_value_get(f"{key}/{i}", left_ms)))
            except jax.errors.JaxRuntimeError as e:
                raise PeerMissing(_missing(what, key, wait_s, e)) from e
    return values


def of_first[T](what: str, find: Callable[[], T]) -> T:
    """What process 0 finds (plain data), on all; so is a `UserError`. A barrier of that name.

    For files that it alone is sure to see as they are.
    """
    me, count = place()
    if count == 1:
        return find()
    found: list[Any] = [None, None]
    if me == 0:
        try:
            found[0] = find()
        except UserError as e:
            found[1] = told(e)
    value, problem = gather(what, found)[0]
    if problem is not None:
        raise as_told(*problem)
    return value


def _missing(what: str, key: str, wait_s: float, error: Exception) -> str:
    count = place()[1]
    try:
        came = {int(k.rpartition("/")[2]) for k, _ in key_values().key_value_dir_get(f"{key}/")}
    except jax.errors.JaxRuntimeError:
        return f"waiting for {what!r}: {name(0)}, the coordinator, does not answer ({error})"
    missing = [name(i) for i in range(count) if i not in came]
    return (
        f"{len(missing)} of {count} did not reach {what!r} within {wait_s:.0f} s: "
        f"{rollcall.some(missing)}"
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
