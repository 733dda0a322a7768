"""Runs a job as processes that this launcher starts, and starts it again while that helps.

The processes are those of this machine, or each stands for others: `srun`, ssh. Launchers on other
hosts say how theirs have ended, in a line of their output (`exits.Exit.line`).
"""

import contextlib
import enum
import math
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from jaxlm import storage
from launch import exits, progress
from launch.exits import OF_ALL, Exit
from launch.process import Events, Process, Spec, say, show

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_AHEAD = (signal.SIGUSR1, signal.SIGUSR2)
"""Sent by schedulers ahead of an end; passed on, since a process then has more time to save."""
_SAME_S = 2.0
"""What follows a signal so soon is the same request: one end of a session or of a machine may send
SIGTERM and SIGHUP, or a signal to a process and then to its group."""
_ORPHAN_S = 60.0
"""From the loss of the launcher of all hosts until a process is killed."""
_WAKE_S = 1.0
"""A signal to a stopped launcher may come to another of its threads once it goes on, which wakes
the main one not; that calls the handlers."""
_LONGEST_DELAY_S = 60.0


type Pause = Callable[[float], bool]
"""Waits for so many seconds; at once, and True, if somebody asks for the end."""


class Ready(enum.Enum):
    """What became of the wait for machines."""

    AS_BEFORE = "as before"
    ANEW = "anew"
    """Those of the attempt before were taken away."""
    STOPPED = "stopped"


@dataclass(frozen=True)
class Job:
    """What is to be run, and how patiently."""

    workdir: str
    """Path or URL."""
    logs: Path
    """Directory of the processes' output."""
    specs: Callable[[], Sequence[Spec]]
    """The processes of one attempt."""
    listens: bool = False
    """Whether signals come on standard input, and the end of it is one: as in `Spec`."""
    before: Callable[[Pause], Ready] | None = None
    """Called ahead of each attempt: has the machines ready when it returns."""
    once: bool = False
    """Whether somebody else starts the job again."""
    tells: bool = False
    """Whether it says how its process has ended to the launcher of all hosts."""
    after_stop: tuple[str, ...] = ()
    """Command that has the job started again later, once it was stopped."""
    leave_s: float = 60.0
    """That it may take to end this process."""
    max_restarts: int = 3
    """Restarts without progress before giving up."""
    what: str = "run"
    """Of `progress.POSITIONS`: what its work directory has, which says how far it has come."""
    peer_grace_s: float = 10.0
    """Once a process has ended as it meant to, how long the others may take to do the same: not
    long, since JAX lets none end in good order before all do."""
    kill_grace_s: float = 2.0
    """Once a process has died, how long the others have between SIGTERM and SIGKILL."""


def run(job: Job) -> int:
    """Runs the job to its end and returns the exit code; call it from the main thread.

    `OSError` if the log directory cannot be made or a process cannot be started.
    """
    job.logs.mkdir(parents=True, exist_ok=True)
    events: Events = queue.SimpleQueue()
    best, stalled = None, 0
    with stop_signals_to(events):
        if job.listens:
            threading.Thread(target=_listen, args=(events,), daemon=True).start()

        def pause(seconds: float) -> bool:
            return next_event(events, time.monotonic() + seconds) is not None

        while True:
            ready = Ready.AS_BEFORE if job.before is None else job.before(pause)
            if ready is Ready.STOPPED:
                return exits.RESTART
            if ready is Ready.ANEW:
                stalled = 0  # what ended the last attempt was not its own
            if best is None:
                began = progress.POSITIONS[job.what](job.workdir)
                best = -1 if began is None else began
            specs = job.specs()
            ended, stopped = _attempt(specs, job, events)
            cause = exits.cause(ended)
            if job.tells:
                for e in ended:
                    show(sys.stdout, replace(e, stopped=stopped).line)
                return exits.DONE if cause is None else cause.code
            if cause is None:
                return exits.DONE
            asked = stopped or any(e.stopped for e in ended)
            if cause.graceful and asked:
                return _stopped(cause, job)
            _report(cause, ended, specs, job)
            if cause.code == exits.RESTART and asked and job.after_stop:
                return _stopped(cause, job)  # a signal too many has ended one that was ending
            if cause.code != exits.RESTART or stopped or job.once:
                return cause.code
            position = progress.POSITIONS[job.what](job.workdir)
            if position is not None and position > best:
                best, stalled = position, 0
            if position is not None and stalled == job.max_restarts:
                say(f"giving up after {stalled} restarts without progress, {_at(best)}")
                return cause.code
            delay = min(2.0 ** min(stalled, 30), _LONGEST_DELAY_S)  # no float holds 2.0**1024
            stalled += position is not None
            say(f"starting again in {delay:.0f} s, {_at(best)}")
            if pause(delay):
                return _stopped(cause, job)


def _stopped(cause: Exit, job: Job) -> int:
    if not job.after_stop:
        say("stopped as asked; the same command goes on from there")
        return cause.code
    say(f"stopped as asked: {shlex.join(job.after_stop)}")
    done = subprocess.run(job.after_stop, check=False)
    if done.returncode == 0:
        time.sleep(job.leave_s)  # this process is ended meanwhile
    return cause.code


def _attempt(specs: Sequence[Spec], job: Job, events: Events) -> tuple[list[Exit], bool]:
    """All processes from start to end: their exits, and whether someone asked us to stop."""
    running: dict[int, Process] = {}
    ended: list[Exit] = []
    stopped, pressed_s, kill_at = False, math.inf, math.inf
    try:
        for spec in specs:
            running[spec.index] = Process(spec, events)
        while running:
            event = next_event(events, kill_at)
            if isinstance(event, Exit):
                running.pop(event.index, None)  # of another host's process none runs here
                ended.append(event)
                grace = job.peer_grace_s if event.graceful else job.kill_grace_s
                kill_at = min(kill_at, event.time + grace)
                if not event.graceful:
                    _each(running, Process.terminate)
            elif event is not None and event in _AHEAD:
                stopped = True
                for process in running.values():
                    process.signal(event)
            elif event in (None, signal.SIGKILL) or time.monotonic() - pressed_s >= _SAME_S:
                kill_at = math.inf  # out of patience, or asked twice
                _each(running, Process.kill)
            elif math.isinf(pressed_s):
                stopped, pressed_s = True, time.monotonic()
                _each(running, Process.terminate)
    finally:
        _each(running, Process.kill)
    told = any(e.status != exits.DONE for e in ended if e.index != OF_ALL)
    return [e for e in ended if e.index != OF_ALL or not told], stopped


def _each(running: Mapping[int, Process], do: Callable[[Process], None]) -> None:
    for process in running.values():
        do(process)


def next_event(events: Events, deadline: float) -> Exit | signal.Signals | None:
    """The next event; None once the monotonic clock is past `deadline`."""
    while True:
        left = deadline - time.monotonic()
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=max(0.0, min(left, _WAKE_S)))
        if left <= _WAKE_S:
            return None


def _listen(events: Events) -> None:
    """Signals by name, a line each. When who sends them is gone, the process has `_ORPHAN_S`."""
    heard: list[signal.Signals] = []
    # No buffer: its lock bars our exit.
    for line in FileIO(sys.stdin.fileno(), closefd=False) if sys.stdin else ():
        name = f"SIG{line.decode(errors='replace').strip()}"
        if name in signal.Signals.__members__:  # else torn: the connection ends here
            heard.append(signal.Signals[name])
            events.put(heard[-1])
    if signal.SIGTERM not in heard:
        events.put(signal.SIGTERM)
    time.sleep(_ORPHAN_S)
    events.put(signal.SIGKILL)


@contextlib.contextmanager
def stop_signals_to(events: Events) -> Iterator[None]:
    """Inside, what asks this process to end becomes an event; of the main thread."""

    # SimpleQueue.put is re-entrant, so a handler may call it while the queue is being read.
    def handle(number: int, _frame: object) -> None:
        events.put(signal.Signals(number))

    numbers = {*_STOP_SIGNALS, *_AHEAD}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # started with nohup
        numbers.remove(signal.SIGHUP)
    before = {s: signal.signal(s, handle) for s in numbers}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _report(cause: Exit, ended: Sequence[Exit], specs: Sequence[Spec], job: Job) -> None:
    logs = {spec.index: spec.log for spec in specs}
    log = logs.get(cause.index) or log_of(cause.index, job.logs)  # else of another host's process
    say(f"{cause}; its log is {log}")
    if not cause.graceful:
        for line in cause.tail:
            say(f"  | {line}")
    for e in ended:
        if e is not cause and e.status != exits.DONE:
            say(f"also, {e.time - cause.time:+.1f} s: {e}")


def logs_of(workdir: str) -> Path:
    """Where the output goes if nobody says where."""
    name = workdir.rstrip("/").rpartition("/")[2]
    return (Path("runs", name) if storage.is_url(workdir) else Path(workdir)) / "logs"


def log_of(index: int, logs: Path) -> Path:
    """The log of a process, or of what starts those of all hosts."""
    return logs / ("launcher.log" if index == OF_ALL else f"process-{index}.log")


def _at(position: int) -> str:
    return "no position reached yet" if position < 0 else f"at position {position:,}"


def free_port() -> int:
    """A port for a server that says `SO_REUSEADDR`, as most do.

    It has just been closed after a connection: for the next minute (Linux) the system gives it to
    nobody who asks for any port.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],  # closed first: it is the one that the port waits for
    ):
        return server.getsockname()[1]
