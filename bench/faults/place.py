"""Where a row of the campaign works: its directory, its data, its luck, and what it counts."""

import contextlib
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from bench import runs
from bench.small_corpus import make_corpus

BATCH = 4
PLAIN = ("evaluate.every=None", "checkpoint.snapshot_every_minutes=None")
"""Overrides of runs in which nothing but steps and full checkpoints is wanted."""


@dataclass
class Outcome:
    """What came of a row's faults."""

    tried: int = 0
    survived: int = 0
    notes: list[str] = field(default_factory=list)
    """What else is to be said: figures, and why a fault was not survived."""

    @property
    def lost(self) -> int:
        """Faults that a run did not survive as promised."""
        return self.tried - self.survived

    @contextlib.contextmanager
    def trying(self, faults: int = 1) -> Iterator[None]:
        """Counts faults as survived unless something inside is not as promised."""
        self.tried += faults
        with self._noting():
            yield
            self.survived += faults

    @contextlib.contextmanager
    def afterwards(self) -> Iterator[None]:
        """What must be so in the end; else all faults so far are lost."""
        survived, self.survived = self.survived, 0
        with self._noting():
            yield
            self.survived = survived

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as e:  # whatever a row runs into, it is no proof
            self.notes.append(lost(e))


def lost(why: Exception) -> str:
    """The note on a fault that was not survived."""
    return f"LOST: {(str(why).strip() or repr(why)).splitlines()[0]}"


@dataclass
class Place:
    """One row's."""

    root: Path
    seed: int
    tries: int
    """How many faults, where a row repeats one."""
    steps: int = 400
    """Of the runs that are killed or stopped on their way."""

    def __post_init__(self) -> None:
        if self.root.exists():
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True)
        self.random = random.Random(f"{self.seed} {self.root.name}")

    @cached_property
    def manifest(self) -> Path:
        """Of a corpus of 2,000 rows in four shards."""
        sources = {"zh": [600, 500], "en": [500, 400]}
        return make_corpus(
            self.root / "data", sources, heldout={"zh": [12], "en": [9]}, tokenizer=True
        )

    @cached_property
    def config(self) -> Path:
        """A run over that corpus."""
        return runs.config_file(self.root / "run.json", self.manifest)

    @cached_property
    def small(self) -> Path:
        """A run of `runs.STEPS` steps that reads all of its corpus, as the system tests use it."""
        return runs.config_file(self.root / "small.json", runs.corpus(self.root / "small"))

    def undisturbed(self, config: Path, *overrides: str) -> Path:
        """Work directory of a run of one process that nothing has happened to."""
        workdir = self.root / "undisturbed"
        self.finish(runs.train(config, workdir, *overrides), "undisturbed")
        return workdir

    def finish(self, command: Sequence[str], name: str, devices: int = 1) -> str:
        """Runs a command to its good end; what it said."""
        code, output = runs.finish(command, self.root / f"{name}.log", devices)
        assert code == 0, f"{name}: exit code {code}: {tail(output)}"
        return output

    def refused(self, command: Sequence[str], name: str, code: int) -> str:
        """Runs a command that must end with this exit code; what it said."""
        found, output = runs.finish(command, self.root / f"{name}.log")
        assert found == code, f"{name}: exit code {found} instead of {code}: {tail(output)}"
        return output


def tail(output: str) -> str:
    """The end of what a process said, on one line."""
    return " | ".join(output.strip().splitlines()[-3:])[-300:]


# ---- rows that were trained on -------------------------------------------------------------------


def recorded(command: Sequence[str], directory: Path) -> list[str]:
    """The same command of `runs.train` or `runs.launch`, which writes down its steps."""
    assert command[1:3] in (["-m", "jaxlm"], ["-m", "launch"])
    name = "train" if command[2] == "jaxlm" else "launch"
    return [sys.executable, "-m", "bench.record_steps", str(directory), name, *command[4:]]


def rows_of(directory: Path, steps: range) -> dict[int, np.ndarray]:
    """Step -> the rows that it was given, in the order of their ids; the last time, if twice.

    A row that lies on the devices of several processes counts once.
    """
    places = [p for p in directory.iterdir() if p.name.isdigit()] or [directory]
    found = {}
    for step in steps:
        rows = np.concatenate([np.load(place / f"{step}.npy") for place in sorted(places)])
        found[step] = np.unique(rows, axis=0)
    return found


def assert_each_once(directory: Path, reference: Path, steps: int, first: int = 1) -> None:
    """Every step was given what an undisturbed run was given, and each position came once.

    Rows are compared from step `first` on.
    """
    since = range(first, steps + 1)
    found, expected = rows_of(directory, since), rows_of(reference, since)
    assert all(len(rows) == BATCH for rows in found.values()), "not each row once"
    different = [step for step in found if not np.array_equal(found[step], expected[step])]
    assert not different, f"steps {different[:5]} were given other rows"
    halves = [np.load(directory / "positions" / f"{step}.npy") for step in range(1, steps + 1)]
    positions = [(int(high) << 32) + int(low) for high, low in np.concatenate(halves)]
    assert positions == list(range(BATCH * steps)), "not each position once"
