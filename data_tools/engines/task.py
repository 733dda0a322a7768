"""A task: one run of it, what can go wrong in that, and what an engine is to others."""

import errno
import os
import resource
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from data_tools.document import DataError
from data_tools.engines.refusal import refusal
from jaxlm.errors import UserError

ATTEMPTS = 3
"""Times that a task is run before it has failed, unless running it again cannot help."""

LIMITED = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment of a worker with a memory limit: Arrow's own pool would reserve a GiB at once."""


NO_MEMORY = (
    os.strerror(errno.ENOMEM),
    os.strerror(errno.EAGAIN),
    "Failed to launch worker thread",
)
"""How Arrow says that a worker's limit left no room for a buffer or for the stack of a thread."""


class Task(Protocol):
    """What an engine knows of a task; it travels to a worker by pickle."""

    @property
    def name(self) -> str:
        """Its partition, for messages."""
        ...

    @property
    def bytes(self) -> int:
        """That it reads, about, for progress."""
        ...


class Engine(Protocol):
    """Runs `function` on each task; returns when all are done.

    A task that fails is run again, up to `ATTEMPTS` times. If one fails for good the others still
    run; then all failures are raised together: a `UserError` if that is all they are, else a
    `TaskError`. An `EnvironmentProblem`, such as a full disk, is raised at once.
    """

    def run[T: Task](
        self, function: Callable[[T], None], tasks: Sequence[T], label: str
    ) -> None: ...

    def close(self) -> None: ...


class TaskError(RuntimeError):
    """A task that failed by a fault of the code or the machine: names the task, says what."""


@dataclass(frozen=True)
class Failure:
    """Why a run of a task failed. The exception itself may not cross to another process."""

    kind: type[Exception]
    message: str
    again: bool
    """Whether another run may end better."""


def execute[T: Task](function: Callable[[T], None], task: T, memory_bytes: int) -> Failure | None:
    """One run in a worker that may take `memory_bytes` more than when it was idle (0: no limit)."""
    try:
        with _limit(memory_bytes):
            function(task)
    except MemoryError:
        return Failure(DataError, _out_of_memory(memory_bytes), again=False)
    except UserError as e:
        return Failure(DataError, str(e), again=False)
    except Exception as e:
        if memory_bytes and any(words in str(e) for words in NO_MEMORY):
            return Failure(DataError, _out_of_memory(memory_bytes), again=False)
        if problem := refusal(e):
            return Failure(type(problem), str(problem), again=False)
        return Failure(TaskError, "".join(traceback.format_exception(e)), again=True)
    return None


def _out_of_memory(memory_bytes: int) -> str:
    if memory_bytes:
        return (
            f"needs more than worker_memory_bytes={memory_bytes}; raise it, or make "
            "partition_bytes smaller"
        )
    return "out of memory; use fewer workers or smaller partition_bytes"


@contextmanager
def _limit(memory_bytes: int) -> Iterator[None]:
    if not memory_bytes:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _idle_bytes() + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, hard) if hard > 0 else wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@cache
def _idle_bytes() -> int:
    """What this process has mapped for data before its first task: libraries, stacks of threads."""
    statm = Path("/proc/self/statm")
    if not statm.exists():  # not Linux
        return 0
    return int(statm.read_text().split()[5]) * resource.getpagesize()
