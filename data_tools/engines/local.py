"""The engines of one machine: this process, or a pool of worker processes."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from data_tools.engines.queue import Attempt, Queue
from data_tools.engines.task import LIMITED, Failure, Task, TaskError, execute


class InProcess:
    """Runs tasks one after the other, here."""

    def run[T: Task](self, function: Callable[[T], None], tasks: Sequence[T], label: str) -> None:
        """See `Engine.run`."""
        with Queue(tasks, label) as queue:
            while queue:
                attempt = queue.next()
                queue.ended(attempt, execute(function, attempt.task, memory_bytes=0))

    def close(self) -> None:
        """Nothing to end."""


class WorkerPool:
    """Long-lived worker processes, each with a pipe, so that a death names its task."""

    def __init__(self, workers: int, memory_bytes: int = 0):
        self._size, self._memory_bytes = workers, memory_bytes
        self._workers: dict[Connection, BaseProcess] = {}
        if memory_bytes:
            os.environ.update(LIMITED)  # workers inherit it, before they import anything

    def run[T: Task](self, function: Callable[[T], None], tasks: Sequence[T], label: str) -> None:
        """See `Engine.run`."""
        busy: dict[Connection, Attempt[T]] = {}
        with Queue(tasks, label) as queue:
            while queue or busy:
                self._start(min(self._size, len(queue) + len(busy)))
                for pipe in [p for p in self._workers if p not in busy]:
                    if queue:
                        busy[pipe] = queue.next()
                        with contextlib.suppress(BrokenPipeError):  # it died idle: seen below
                            pipe.send((function, busy[pipe].task, self._memory_bytes))
                for pipe in wait(list(busy)):
                    assert isinstance(pipe, Connection)
                    try:
                        failure = pipe.recv()
                    except (EOFError, ConnectionError):
                        failure = self._bury(pipe)
                    queue.ended(busy.pop(pipe), failure)

    def _start(self, count: int) -> None:
        # spawn: a forked copy of a process with threads (Arrow has some) can deadlock.
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < count:
            ours, theirs = context.Pipe()
            assert isinstance(ours, Connection)
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            _start_deaf(process)
            theirs.close()
            self._workers[ours] = process

    def _bury(self, pipe: Connection) -> Failure:
        """Forgets a worker that died, and says how."""
        process = self._workers.pop(pipe)
        pipe.close()
        process.join()
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        message = f"its worker died ({how}"
        if code in (-signal.SIGKILL, -signal.SIGABRT):
            message += ": most often out of memory; use fewer workers or smaller partition_bytes"
        return Failure(TaskError, f"{message})", again=True)

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


def _start_deaf(process: BaseProcess) -> None:
    """A worker inherits what is blocked: Ctrl-C would find it in its imports, and end it there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection) -> None:
    """A worker: runs tasks until its parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):  # it was killed
        while True:
            pipe.send(execute(*pipe.recv()))


def _die_with_parent() -> None:
    """A worker left behind by a killed build must not commit under the next one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
