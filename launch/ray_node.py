"""A node of a Ray cluster that lasts as long as one data build.

On the first node Ray's head and the build, beside each other; on the others Ray's workers, for as
long as the head answers. A worker that dies is started again, and the build goes on meanwhile.
"""

import importlib.util
import math
import os
import queue
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch import arguments, exits, place
from launch.exits import OF_ALL, Exit
from launch.job import next_event, stop_signals_to
from launch.place import Place
from launch.process import Events, Process, Spec, say, show

STORE_BYTES = 128 << 20
"""Of Ray's object store: its tasks return next to nothing, all data is in files."""
PATIENCE_S = 600.0
"""That the head may take to answer for the first time."""
GONE_S = 10.0
"""Once it has answered: how long it may be silent."""
AGAIN_S = 10.0
"""Until a worker that has died is started again."""
_POLL_S = 2.0
_END_S = 20.0
"""That Ray and the build may take to end, once asked."""
_BUILD, _HEAD = 0, OF_ALL  # what the head says is shown without a number

BUILD = (sys.executable, "-m", "data_tools", "build", "--engine=ray")
RAY = (
    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
    f"--object-store-memory={STORE_BYTES}",
)


def main(argv: Sequence[str]) -> int:
    """`python -m launch ray node`: in a task of Slurm, one a node; returns the exit code."""
    parser = arguments.Parser("ray node")
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--logs", type=Path, required=True)
    cut = argv.index("--")
    args, rest = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    here = place.of_slurm()
    if importlib.util.find_spec("ray") is None:
        say(f"{sys.executable}: Ray is not installed on this node; pip install 'jaxlm[ray]'")
        ended = Exit(time.monotonic(), here.process, exits.ENVIRONMENT, ())
    else:
        os.environ.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")  # nothing to wait for
        build = (*BUILD, f"--workdir={args.workdir}", *rest)
        specs = plan(here, build, args.logs, os.environ.get("SLURM_CPUS_ON_NODE", ""))
        ended = follow(here, *specs) if here.process else lead(*specs)
    show(sys.stdout, ended.line)
    return ended.code


def plan(here: Place, build: Sequence[str], logs: Path, cpus: str = "") -> tuple[Spec, ...]:
    """What runs on this node; `cpus`: that Ray may use, empty: all."""
    host, _, port = here.coordinator.rpartition(":")
    limit = (f"--num-cpus={cpus}",) if cpus else ()
    log = logs / f"process-{here.process}.log"
    if here.process:
        return (Spec(here.process, (*RAY, f"--address={here.coordinator}", *limit), log),)
    head = ("--head", f"--port={port}", *_advertised(host), "--include-dashboard=false")
    cluster = (f"--ray-address={here.coordinator}", f"--ray-nodes={here.processes}")
    return (
        Spec(_BUILD, (*build, *cluster), log),
        Spec(_HEAD, (*RAY, *head, *limit), logs / "ray-head.log"),
    )


def _advertised(host: str) -> tuple[str, ...]:
    """The head's address as others find it, and not that of its default route."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return ()
    return () if address.startswith("127.") else (f"--node-ip-address={address}",)


def lead(build: Spec, head: Spec) -> Exit:
    """Ray's head and the build, until one of them ends, and then the other: what it means."""
    events: Events = queue.SimpleQueue()
    ended: list[Exit] = []
    stopped, kill_at = False, math.inf
    with stop_signals_to(events):
        running = {spec.index: Process(spec, events) for spec in (head, build)}
        while running:
            event = next_event(events, kill_at)
            if event is None:
                kill_at = math.inf
                for process in running.values():
                    process.kill()
                continue
            if isinstance(event, Exit):
                running.pop(event.index)
                ended.append(event)
            else:
                stopped = True
            if math.isinf(kill_at):
                kill_at = time.monotonic() + _END_S
                for process in running.values():
                    process.terminate()
    if ended[0].index == _HEAD and not stopped:
        say(f"Ray's head has ended, and the build with it; its log is {head.log}")
    return _meaning(ended, stopped)


def _meaning(ended: Sequence[Exit], stopped: bool) -> Exit:
    of_build = next(e for e in ended if e.index == _BUILD)
    if of_build.status == exits.DONE:
        return of_build
    if stopped:
        return replace(of_build, status=exits.RESTART, stopped=True)
    if ended[0].index == _HEAD:
        return replace(of_build, status=exits.RESTART)
    return of_build


def follow(here: Place, worker: Spec) -> Exit:
    """Ray's worker, for as long as the head answers."""
    events: Events = queue.SimpleQueue()
    ray: Process | None = None
    heard, patience_s, start_at = time.monotonic(), PATIENCE_S, 0.0
    with stop_signals_to(events):
        while time.monotonic() - heard < patience_s:
            if _answers(here.coordinator):
                heard, patience_s = time.monotonic(), GONE_S
                if ray is None and heard >= start_at:
                    ray = Process(worker, events)
            event = next_event(events, time.monotonic() + _POLL_S)
            if isinstance(event, Exit):
                say(f"Ray's worker: {event}; starting it again in {AGAIN_S:.0f} s")
                ray, start_at = None, event.time + AGAIN_S
            elif event is not None:
                break
        if ray is not None:
            _end(ray, events)
    if patience_s == PATIENCE_S and time.monotonic() - heard >= patience_s:
        say(f"{here.coordinator}: Ray's head has not answered within {PATIENCE_S:.0f} s")
    return Exit(time.monotonic(), here.process, exits.DONE, ())


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_POLL_S).close()
    except OSError:
        return False
    return True


def _end(process: Process, events: Events) -> None:
    process.terminate()
    deadline = time.monotonic() + _END_S
    while (event := next_event(events, deadline)) is not None:
        if isinstance(event, Exit):
            return
    process.kill()
