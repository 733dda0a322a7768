"""The tasks of a stage that wait, and those that failed for good."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from data_tools.document import DataError
from data_tools.engines.progress import Progress
from data_tools.engines.task import ATTEMPTS, Failure, Task, TaskError
from jaxlm.errors import EnvironmentProblem

SHOWN = 5
"""Failures that are told in full."""


@dataclass(frozen=True)
class Attempt[T]:
    """A task and the number of this run of it, from 1."""

    task: T
    number: int


class Queue[T: Task]:
    """Gives out attempts, takes what came of them, and raises at its end what failed."""

    def __init__(self, tasks: Sequence[T], label: str):
        self._waiting = deque(Attempt(task, 1) for task in tasks)
        self._failed: list[tuple[T, Failure]] = []
        self._label = label
        self._progress = Progress(label, len(tasks), sum(t.bytes for t in tasks))

    def __len__(self) -> int:
        """Attempts that wait."""
        return len(self._waiting)

    def next(self) -> Attempt[T]:
        """An attempt to make; its end must be told."""
        return self._waiting.popleft()

    def ended(self, attempt: Attempt[T], failure: Failure | None) -> None:
        """Takes note; a full disk or the like raises: no other task can go on."""
        if failure is None:
            self._progress.update(attempt.task.bytes)
        elif failure.kind is EnvironmentProblem:
            raise self._error(attempt.task, failure)
        elif failure.again and attempt.number < ATTEMPTS:
            last = failure.message.rstrip().rpartition("\n")[2]
            self._progress.write(f"{self._where(attempt.task)}: {last}; trying again")
            self._waiting.append(Attempt(attempt.task, attempt.number + 1))
        else:
            self._failed.append((attempt.task, failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.close()
        if kind is None and self._failed:
            raise self._failures()

    def _failures(self) -> Exception:
        failed = sorted(self._failed, key=lambda f: f[0].name)
        errors = [self._error(*f) for f in failed]
        if len(errors) == 1:
            return errors[0]
        kind = DataError if all(isinstance(e, DataError) for e in errors) else TaskError
        lines = [f"{self._label}: {len(errors)} partitions failed, all others are done"]
        lines += [str(e) for e in errors[:SHOWN]]
        if errors[SHOWN:]:
            lines.append("and " + ", ".join(task.name for task, _ in failed[SHOWN:]))
        return kind("\n".join(lines))

    def _error(self, task: T, failure: Failure) -> Exception:
        between = f" failed {ATTEMPTS} times:\n" if failure.again else ": "
        return failure.kind(f"{self._where(task)}{between}{failure.message}")

    def _where(self, task: T) -> str:
        return f"{self._label}: partition {task.name}"
