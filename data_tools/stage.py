"""A stage: a pure function over a partition of its input; atomic commits, resume by fingerprint.

    <root>/<partition>/<output>        files that the function wrote, under names of its choice
    <root>/<partition>/commit.json     fingerprint, size and sha256 of each output, report, time

A partition is written in a temporary directory, synced, and renamed: it is there whole or not at
all. It is not run again while its fingerprint stands: the stage's name and version, the partition's
name, its slice of the recipe, and the identity of every input. The identity of a stage's output is
its sha256, so a stage that runs again and writes the same bytes makes nothing after it run.
"""

import hashlib
import json
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.engines import Engine
from jaxlm.data.manifest import sha256
from jaxlm.schema import to_dict

COMMIT = "commit.json"

type Report = dict[str, Any]
"""What a partition has to say: counts and samples, as plain JSON."""


@dataclass(frozen=True)
class Input:
    """A file that a partition reads."""

    path: Path
    name: str
    """What it is called in ids and reports: a raw file's path below its source's root, or the
    partition that wrote it. Unlike `path` it does not change when a directory moves."""
    identity: str
    """Changes when the content does."""


@dataclass(frozen=True)
class Partition[C]:
    """The unit of work: what one call of a stage's function reads."""

    name: str
    config: C
    """The slice of the recipe that the result depends on, and nothing else of it."""
    inputs: Mapping[str, tuple[Input, ...]]
    """By role, for example documents and duplicates."""


@dataclass(frozen=True)
class Stage[C]:
    """A named, versioned function from a partition to files in a directory."""

    name: str
    version: str
    """Raise it when the function's result changes for the same input."""
    run: Callable[[Partition[C], Path], Report]
    """Writes any number of files into the directory; importable, and a pure function."""


@dataclass(frozen=True)
class Output:
    """A committed file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Commit:
    """A finished partition."""

    partition: str
    fingerprint: str
    directory: Path
    outputs: Mapping[str, Output]
    report: Report
    seconds: float
    """That its function took in its worker, when it ran."""

    def input(self, output: str) -> tuple[Input, ...]:
        """That output as the input of a later stage; empty when it was not written."""
        if output not in self.outputs:
            return ()
        return (Input(self.directory / output, self.partition, self.outputs[output].sha256),)


@dataclass(frozen=True)
class StageResult:
    """All partitions of a stage, in the order given, and those that had to run."""

    commits: tuple[Commit, ...]
    ran: tuple[str, ...]
    seconds: float
    """From the first to the last of those that ran, on the clock."""

    def about(self, partition: str, what: str = "") -> tuple[Input, ...]:
        """What a stage over the whole corpus has to say about one partition of documents: its
        outputs `<partition><what>.parquet`."""
        return tuple(i for c in self.commits for i in c.input(f"{partition}{what}.parquet"))


type Run = Callable[[Stage[Any], Sequence[Partition[Any]]], StageResult]
"""Runs a stage in the place that a build keeps for it."""


@dataclass(frozen=True)
class Task:
    """One partition to run; what an engine hands to a worker."""

    stage: Stage[Any]
    partition: Partition[Any]
    root: Path
    fingerprint: str
    bytes: int
    """That it reads; a file that other partitions read too counts in part."""

    @property
    def name(self) -> str:
        """Of its partition."""
        return self.partition.name


def fingerprint(stage: Stage[Any], partition: Partition[Any]) -> str:
    """32 hex digits over all that the partition's result depends on."""
    inputs = {
        role: [(i.name, i.identity) for i in files] for role, files in partition.inputs.items()
    }
    parts = [stage.name, stage.version, partition.name, to_dict(partition.config), inputs]
    data = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(data.encode()).hexdigest()[:32]


def is_done(stage: Stage[Any], partitions: Sequence[Partition[Any]], root: Path) -> bool:
    """Whether `run_stage` would change nothing."""
    return not _pending(stage, partitions, root) and not _stale(partitions, root)


def _stale(partitions: Sequence[Partition[Any]], root: Path) -> list[Path]:
    """What belongs to no partition: of an earlier recipe, or a killed build's temporary."""
    names = {p.name for p in partitions}
    return [p for p in root.iterdir() if p.name not in names] if root.exists() else []


def _sweep(partitions: Sequence[Partition[Any]], root: Path) -> None:
    for entry in _stale(partitions, root):
        _remove(entry)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:  # what a file manager or an editor left there
        entry.unlink(missing_ok=True)


def _pending(stage: Stage[Any], partitions: Sequence[Partition[Any]], root: Path) -> list[Task]:
    """The partitions that have no commit with their present fingerprint."""
    readers = Counter(i.path for p in partitions for files in p.inputs.values() for i in files)
    tasks = []
    for p in partitions:
        current = fingerprint(stage, p)
        if _current(root / p.name, current) is None:
            paths = [i.path for files in p.inputs.values() for i in files]
            size = sum(path.stat().st_size // readers[path] for path in paths)
            tasks.append(Task(stage, p, root, current, size))
    return tasks


def run_stage(
    stage: Stage[Any], partitions: Sequence[Partition[Any]], root: Path, engine: Engine
) -> StageResult:
    """Runs what is not committed yet and removes what belongs to no partition any more."""
    names = {p.name for p in partitions}
    assert len(names) == len(partitions), f"{stage.name}: partition names are not distinct"
    root.mkdir(parents=True, exist_ok=True)
    _sweep(partitions, root)
    started = time.monotonic()
    tasks = _pending(stage, partitions, root)
    engine.run(run_task, tasks, stage.name)
    _sweep(partitions, root)  # attempts whose worker died
    commits = [_current(root / p.name, fingerprint(stage, p)) for p in partitions]
    assert all(commits), f"{stage.name}: a partition is not committed after its run"
    seconds = time.monotonic() - started
    if partitions:
        reused = len(partitions) - len(tasks)
        rate = sum(t.bytes for t in tasks) / 1e6 / seconds
        speed = f", {rate:.1f} MB/s" if tasks else ""
        print(
            f"{stage.name}: {len(tasks)} run, {reused} reused, {seconds:.1f} s{speed}", flush=True
        )
    ran = tuple(t.partition.name for t in tasks)
    return StageResult(tuple(c for c in commits if c), ran, seconds)


def run_task(task: Task) -> None:
    """Runs one partition and commits it: a crash at any moment leaves the old state or the new."""
    final = task.root / task.name
    if _current(final, task.fingerprint):  # by an attempt whose worker died right after
        return
    # a name of its own: on a cluster, an attempt that is given up may still be running
    temporary = task.root / f"{task.name}.{uuid.uuid4().hex}.tmp"
    temporary.mkdir()
    started = time.monotonic()
    report = task.stage.run(task.partition, temporary)
    seconds = round(time.monotonic() - started, 3)
    outputs = {}
    for path in sorted(temporary.iterdir()):
        outputs[path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
        _sync(path)
    commit = {
        "fingerprint": task.fingerprint,
        "outputs": outputs,
        "report": report,
        "seconds": seconds,
    }
    (temporary / COMMIT).write_text(json.dumps(commit, ensure_ascii=False), encoding="utf-8")
    _sync(temporary / COMMIT)
    _sync(temporary)
    _remove(final)
    temporary.rename(final)
    _sync(task.root)


def _current(directory: Path, expected: str) -> Commit | None:
    """The commit in a directory if it has this fingerprint."""
    commit = committed(directory)
    return commit if commit is not None and commit.fingerprint == expected else None


def committed(directory: Path) -> Commit | None:
    """The commit in a directory if there is one and its files are all there, of their sizes."""
    try:
        data = json.loads((directory / COMMIT).read_text(encoding="utf-8"))
        commit = Commit(
            partition=directory.name,
            fingerprint=data["fingerprint"],
            directory=directory,
            outputs={name: Output(**o) for name, o in data["outputs"].items()},
            report=data["report"],
            seconds=data["seconds"],
        )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError):  # torn, or written by no build
        return None
    for name, output in commit.outputs.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != output.bytes:
            return None
    return commit


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
