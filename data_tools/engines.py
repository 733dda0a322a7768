"""Where tasks run: in this process, or in a pool of worker processes on this machine.

An engine runs a function on tasks in any order, retries a task whose worker died, shows progress,
and names the task that failed. Tasks commit their own results (`stage.run_task`), so an engine
returns nothing, and another one (a cluster's) only has to call the same function.
"""

import contextlib
import errno
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, Self

from tqdm import tqdm

from data_tools.document import DataError
from jaxlm.errors import EnvironmentProblem, UserError

ATTEMPTS = 3
"""Times that a task may kill its worker before the build stops."""


class TaskError(RuntimeError):
    """A task that failed by a fault of the code or the machine: names the task, says what."""


class Engine(Protocol):
    """Runs `function` on each task; returns when all are done, raises at the first failure."""

    def run[T](
        self,
        function: Callable[[T], None],
        tasks: Sequence[T],
        label: str,
        name: Callable[[T], str],
    ) -> None: ...

    def close(self) -> None: ...


def local(workers: int) -> Engine:
    """The engine of one machine; one worker is this process itself, which a debugger can enter."""
    return WorkerPool(workers) if workers > 1 else InProcess()


class InProcess:
    """Runs tasks one after the other, here."""

    def run[T](
        self,
        function: Callable[[T], None],
        tasks: Sequence[T],
        label: str,
        name: Callable[[T], str],
    ) -> None:
        for task in _progress(tasks, label):
            try:
                function(task)
            except Exception as e:
                raise _failure(f"{label}: partition {name(task)}", _describe(e)) from e

    def close(self) -> None:
        """Nothing to end."""


class WorkerPool:
    """Long-lived worker processes, each with a pipe, so that a death names its task."""

    def __init__(self, workers: int):
        self._size = workers
        self._workers: dict[Connection, BaseProcess] = {}

    def run[T](
        self,
        function: Callable[[T], None],
        tasks: Sequence[T],
        label: str,
        name: Callable[[T], str],
    ) -> None:
        waiting = deque((task, 1) for task in tasks)
        busy: dict[Connection, tuple[T, int]] = {}
        with _progress(tasks, label) as bar:
            while waiting or busy:
                self._start(min(self._size, len(waiting) + len(busy)))
                for pipe in [p for p in self._workers if p not in busy]:
                    if waiting:
                        busy[pipe] = waiting.popleft()
                        with contextlib.suppress(BrokenPipeError):  # it died idle: seen below
                            pipe.send((function, busy[pipe][0]))
                for pipe in wait(list(busy)):
                    assert isinstance(pipe, Connection)
                    task, attempt = busy.pop(pipe)
                    where = f"{label}: partition {name(task)}"
                    try:
                        failure = pipe.recv()
                    except (EOFError, ConnectionError):
                        waiting.append((task, self._bury(pipe, attempt, where, bar)))
                        continue
                    if failure is not None:
                        raise _failure(where, failure)
                    bar.update()

    def _start(self, count: int) -> None:
        # spawn: a forked copy of a process with threads (Arrow has some) can deadlock.
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < count:
            ours, theirs = context.Pipe()
            assert isinstance(ours, Connection)
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers[ours] = process

    def _bury(self, pipe: Connection, attempt: int, where: str, bar: "tqdm[Any]") -> int:
        """Forgets a worker that died; returns the number of the next attempt, or gives up."""
        process = self._workers.pop(pipe)
        pipe.close()
        process.join()
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if attempt == ATTEMPTS:
            raise TaskError(
                f"{where} killed its worker {ATTEMPTS} times (last: {how}; SIGKILL is most often "
                "the machine out of memory: use fewer workers or smaller partition_bytes)"
            )
        bar.write(f"{where}: the worker died ({how}), trying again")
        return attempt + 1

    def close(self) -> None:
        """Ends the workers at once; an unfinished task leaves only a temporary directory."""
        for process in self._workers.values():
            process.terminate()
        for pipe, process in self._workers.items():
            process.join()
            pipe.close()
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _progress[T](tasks: Sequence[T], label: str) -> "tqdm[T]":
    # disable=None: no bar when stderr is not a terminal
    return tqdm(tasks, desc=label, unit="partition", disable=None, leave=False)


def _describe(e: Exception) -> tuple[type[Exception], str]:
    """(Kind of failure, what happened): an exception itself may not cross the pipe."""
    if isinstance(e, UserError):
        return DataError, str(e)
    if os.strerror(errno.ENOSPC) in str(e):  # also in the RuntimeError of an ArrayRecord writer
        return EnvironmentProblem, f"{e}; make room, then start again"
    return TaskError, "".join(traceback.format_exception(e))


def _failure(where: str, failure: tuple[type[Exception], str]) -> Exception:
    kind, message = failure
    return kind(f"{where} failed:\n{message}" if kind is TaskError else f"{where}: {message}")


def _work(pipe: Connection) -> None:
    """A worker: runs tasks until its parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError):
        while True:
            function, task = pipe.recv()
            try:
                function(task)
                failure = None
            except Exception as e:
                failure = _describe(e)
            pipe.send(failure)


def _die_with_parent() -> None:
    """A worker left behind by a killed build must not commit under the next one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
