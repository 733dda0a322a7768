"""A launcher that stays until its job has ended, and how others look at it and stop it.

It holds a lock in the directory of its logs, so that a work directory has one at a time, and `stop`
finds it. The lock is the system's: it goes with the process, however that ends.
"""

import argparse
import contextlib
import fcntl
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from launch import arguments, exits, job
from launch.job import Job, logs_of
from launch.process import explained, say, show

LOCK = "launcher.lock"
_POLL_S = 0.1


def run(to_do: Job) -> int:
    """Runs the job to its end; the exit code. `ValueError` if its launcher is running already."""
    try:
        with _held(to_do.logs):
            return job.run(to_do)
    except OSError as e:
        say(explained(e, to_do.workdir))
        return exits.ENVIRONMENT


@contextlib.contextmanager
def _held(logs: Path) -> Iterator[None]:
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / LOCK).open("a+", encoding="utf-8") as file:
        if not _locked(file):
            raise ValueError(
                f"{logs}: {_who(file)} is running this already; stop it first, or choose "
                "another --workdir"
            )
        file.truncate(0)
        json.dump([os.getpid(), socket.gethostname()], file)
        file.flush()
        yield


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:  # a file system without locks
        say(f"{file.name}: cannot be locked ({e.strerror}); see that one launcher runs")
    return True


@dataclass(frozen=True)
class _Holder:
    """The launcher that has the lock."""

    pid: int
    host: str
    asked: bool = False
    """Whether `stop` has asked it to end: asked again, it would kill."""

    def __str__(self) -> str:
        return f"a launcher, process {self.pid} on {self.host},"


def _who(file: TextIO) -> _Holder:
    file.seek(0)
    try:
        name, *asked = file.read().splitlines() or [""]
        pid, host = json.loads(name)
        return _Holder(int(pid), str(host), bool(asked))
    except (ValueError, TypeError):  # it has just taken the lock
        return _Holder(0, "?")


def _holder(logs: Path) -> _Holder | None:
    """`OSError` if the lock cannot be read."""
    try:
        with (logs / LOCK).open("r+", encoding="utf-8") as file:
            return None if _locked(file) else _who(file)
    except FileNotFoundError:
        return None


# ---- status, logs, stop --------------------------------------------------------------------------


def _status(args: argparse.Namespace) -> int:
    holder = _holder(args.logs)
    said = f"{args.workdir}: {'no launcher runs' if holder is None else f'{holder} runs it'}\n"
    show(sys.stdout, said.encode(errors="surrogateescape"))
    return show_status(args.workdir)


def _logs(args: argparse.Namespace) -> int:
    return show_log(args.logs / args.log.format(args.process), args)


def _stop(args: argparse.Namespace) -> int:
    holder = _holder(args.logs)
    if holder is None:
        raise ValueError(f"{args.workdir}: no launcher runs it, by {args.logs / LOCK}")
    if holder.host != socket.gethostname():
        raise ValueError(f"{args.workdir}: {holder} runs it; stop it there")
    if not holder.asked:
        _ask(holder, args)
    say("every process saves and ends; Ctrl-C only ends this waiting")
    while _holder(args.logs) is not None:
        time.sleep(_POLL_S)
    say("stopped; the same command goes on from there")
    return exits.DONE


def _ask(holder: _Holder, args: argparse.Namespace) -> None:
    try:
        os.kill(holder.pid, signal.SIGTERM)
        with (args.logs / LOCK).open("a", encoding="utf-8") as file:
            file.write("\nasked to stop\n")
    except ProcessLookupError:  # it has just ended, or its pid is another container's
        say(f"process {holder.pid} is not seen here; if it stays, stop it where it was started")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "status": _status,
    "logs": _logs,
    "stop": _stop,
}


def actions(launcher: str, log: str) -> dict[str, Callable[[Sequence[str]], int]]:
    """What can be asked of a launcher of that name from another terminal, by its command line.

    `log`: name of the log of process `{}`.
    """
    return {name: functools.partial(_act, launcher, log, name) for name in _ACTIONS}


def _act(launcher: str, log: str, action: str, argv: Sequence[str]) -> int:
    parser = arguments.Parser(f"{launcher} {action}")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="of the run, or its URL")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="if it was started with them")
    if action == "logs":
        number = arguments.whole(0)
        parser.add_argument("--process", type=number, default=0, metavar="N", help="default 0")
        add_lines(parser)
    parser.set_defaults(log=log)
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir])
    args.logs = args.logs or logs_of(args.workdir)
    return _ACTIONS[action](args)


def add_lines(parser: argparse.ArgumentParser) -> None:
    """How much of a log is shown."""
    lines = arguments.whole(0)
    parser.add_argument("--lines", type=lines, default=200, metavar="N", help="the last N")
    parser.add_argument("--follow", action="store_true", help="and those to come")


def show_log(path: Path, args: argparse.Namespace) -> int:
    """The end of a log; the exit code. `ValueError` if there is none."""
    if not path.exists():
        raise ValueError(f"{path}: is not there; has the job started, was it given other --logs?")
    follow = ("--follow=name",) if args.follow else ()
    return subprocess.run(("tail", f"--lines={args.lines}", *follow, path), check=False).returncode


def show_status(workdir: str) -> int:
    """What the run says of itself; the exit code."""
    command = (sys.executable, "-m", "jaxlm", "status", f"--workdir={workdir}")
    return subprocess.run(command, check=False).returncode
