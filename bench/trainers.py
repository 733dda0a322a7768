"""`make bench-peers`: jaxlm's training step beside those of other frameworks, on this machine.

The same model from the same weights on the same batches, each in processes of its own that take
turns; writes a section of docs/speed.md. The others' environments lie under --dir and are kept. Two
hours on 2 cores, half of it MaxText's.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import environments
from bench.trainers_page import (
    AGREE_STEPS,
    OURS,
    WARM_UP,
    Disagreement,
    Result,
    Table,
    check,
    replace,
    section,
)
from jaxlm import allocator
from jaxlm.workdir import write_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speed.md"
DTYPES = ("bfloat16", "float32")
ALLOCATOR = {allocator.VARIABLE: allocator.tunables({})}
"""Of glibc, given to all: those that a run of ours gives itself."""
LIMIT_S = 3600
"""Longest that a process may take."""


class Trainer(NamedTuple):
    """Whom we measure ourselves against."""

    kind: str
    """In `bench.step_peers`."""
    environment: str
    """A key of `bench.environments.ENVIRONMENTS`."""
    goal: float
    """How many times as fast we mean to be."""
    dtypes: Sequence[str] = DTYPES
    same_weights: bool = True
    """Whether it starts from our weights on our batches, so that losses can be compared."""


TRAINERS = {
    "PyTorch, eager": Trainer("eager", "torch", 1.1),
    "PyTorch, torch.compile": Trainer("compile", "torch", 1.0),
    "PyTorch, eager, autocast": Trainer("eager-autocast", "torch", 1.1, ("bfloat16",)),
    "PyTorch, torch.compile, autocast": Trainer("compile-autocast", "torch", 1.0, ("bfloat16",)),
    "MaxText": Trainer("maxtext", "maxtext", 5.0, same_weights=False),
}
GOALS = {OURS: 1.0} | {name: trainer.goal for name, trainer in TRAINERS.items()}


class Failed(Exception):
    """A trainer's process that did not end well, in a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; returns 1 if a goal is missed or a peer did not run."""
    args = parser().parse_args(argv)
    args.dir.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        (args.dir / "results.jsonl").unlink(missing_ok=True)
    case = args.dir / "case"
    command = [sys.executable, "-m", "bench.step_ours", "export", str(case), str(args.steps)]
    subprocess.run(command, check=True, cwd=ROOT)
    trainers = {name: t for name, t in TRAINERS.items() if name not in args.without}
    bench = Bench(args.dir, case, args.steps, _kept(args.dir, args.steps), trainers)
    bench.make_environments()
    try:
        for number in range(args.rounds):
            bench.round(number, settings=True)
        for number in range(args.bare_rounds):
            bench.round(number, settings=False)
    except (Disagreement, Failed) as e:
        print(f"bench-peers: {e}", file=sys.stderr)
        return 1
    tables = dict(bench.tables())
    text = section(
        tables,
        GOALS,
        f"{os.cpu_count()} CPU cores ({processor()}), {time.strftime('%Y-%m-%d')}",
        f"{args.rounds} rounds of {args.steps - WARM_UP} steps after {WARM_UP} that are not timed",
        " ".join(f"{name}={value}" for name, value in ALLOCATOR.items()),
    )
    print(f"\n{text}")
    page = args.page.read_text(encoding="utf-8") if args.page.is_file() else ""
    write_text(args.page, replace(page, text))
    missed = [line for table in tables.values() for line in table.missed(GOALS)]
    missed += [f"{name} did not run: {why}" for name, why in bench.skipped.items()]
    for line in missed:
        print(f"goal missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.trainers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 done; 1 a goal is missed, a peer did not run, or losses disagree",
    )
    parser.add_argument("--dir", type=lambda p: Path(p).absolute(), default="runs/bench-peers")
    parser.add_argument("--steps", type=_steps, default=WARM_UP + 15, help="a process; 2 not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare-rounds", type=int, default=1, help="without allocator settings")
    parser.add_argument(
        "--without", action="append", choices=TRAINERS, default=[], help="leaves a peer out"
    )
    parser.add_argument("--resume", action="store_true", help="goes on with interrupted rounds")
    parser.add_argument("--page", type=Path, default=PAGE, help="default docs/speed.md")
    return parser


def _steps(text: str) -> int:
    if int(text) < WARM_UP + AGREE_STEPS:
        raise argparse.ArgumentTypeError(f"{text}: must be at least {WARM_UP + AGREE_STEPS}")
    return int(text)


def _kept(directory: Path, steps: int) -> list[Result]:
    """Results of earlier runs with as many steps."""
    path = directory / "results.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    found = [Result(**json.loads(line)) for line in lines]
    return [r for r in found if len(r.losses) == steps]


class Bench:
    """The measurements of one command."""

    def __init__(
        self,
        root: Path,
        case: Path,
        steps: int,
        results: list[Result],
        trainers: Mapping[str, Trainer] = TRAINERS,
    ):
        self.root, self.case, self.steps = root, case, steps
        self.results, self.trainers = results, trainers
        self.skipped: dict[str, str] = {}
        self.pythons: dict[str, Path] = {}

    def make_environments(self) -> None:
        """Those of the trainers; who has none is skipped, with the reason."""
        for name, trainer in self.trainers.items():
            try:
                self.pythons[name] = environments.make(trainer.environment, self.root)
            except environments.Missing as e:
                self.skip(name, str(e))

    def skip(self, name: str, why: str) -> None:
        """Takes a trainer out, loudly; the first reason stays."""
        self.skipped.setdefault(name, why)
        print(f"SKIPPED {name}: {why}", file=sys.stderr, flush=True)

    def round(self, number: int, settings: bool) -> None:
        """Each trainer once in each type, in an order that turns with the round."""
        for dtype in DTYPES:
            names = [OURS, *(n for n, t in self.trainers.items() if dtype in t.dtypes)]
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                if name in self.skipped or self._find(name, dtype, settings, number):
                    continue
                try:
                    result = self.measure(name, dtype, settings, number)
                except Failed as e:
                    if name == OURS:
                        raise
                    self.skip(name, str(e))
                    continue
                self.results.append(result)
                with (self.root / "results.jsonl").open("a") as file:
                    file.write(json.dumps(result._asdict()) + "\n")
                speed = self.table_of(dtype).speed([result])
                bare = "" if settings else ", allocator as it is"
                print(
                    f"round {number + 1}, {dtype}{bare}: {name} {speed:,.0f} tokens/s", flush=True
                )
            self.check(dtype, settings, number)

    def check(self, dtype: str, settings: bool, number: int) -> None:
        """Raises `Disagreement` if a round's losses differ."""
        ours = self._find(OURS, dtype, settings, number)
        assert ours is not None
        for name, trainer in self.trainers.items():
            theirs = self._find(name, dtype, settings, number)
            if theirs is not None and trainer.same_weights:
                check(ours, theirs)

    def measure(self, name: str, dtype: str, settings: bool, number: int) -> Result:
        """One process; raises `Failed`."""
        rest = [str(self.case), dtype, str(self.steps)]
        if name == OURS:
            command = [sys.executable, "-m", "bench.step_ours", "run", *rest]
        else:
            script = str(ROOT / "bench" / "step_peers.py")
            command = [str(self.pythons[name]), "-P", script, self.trainers[name].kind, *rest]
        log = self.root / "process.log"
        left_out = ("GLIBC_", "MALLOC_", "JAX_COMPILATION_CACHE_DIR")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        with tempfile.TemporaryDirectory() as cache, log.open("w") as errors:
            # Nothing compiled by an earlier process helps: start-up is that of a first run.
            environment = inherited | {"TORCHINDUCTOR_CACHE_DIR": cache}
            environment |= ALLOCATOR if settings else {}
            try:
                done = subprocess.run(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=environment,
                    cwd=ROOT,
                    timeout=LIMIT_S,
                )
            except subprocess.TimeoutExpired:
                raise Failed(f"more than {LIMIT_S} s in {dtype}") from None
        if done.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            kept = shutil.copyfile(
                log, self.root / f"failed-{'ours' if name == OURS else name}.log"
            )
            raise Failed(f"exit code {done.returncode} in {dtype}: {lines[-1]} ({kept})")
        figures = json.loads(done.stdout.splitlines()[-1])
        return Result(trainer=name, dtype=dtype, settings=settings, round=number, **figures)

    def _find(self, name: str, dtype: str, settings: bool, number: int) -> Result | None:
        wanted = (name, dtype, settings, number)
        return next((r for r in self.results if r[:4] == wanted), None)

    def table_of(self, dtype: str) -> Table:
        """The results of a type."""
        shape = json.loads((self.case / "case.json").read_text())
        skipped = {n: why for n, why in self.skipped.items() if dtype in self.trainers[n].dtypes}
        found = [r for r in self.results if r.dtype == dtype]
        tokens = shape["batch_size"] * shape["seq_len"]
        return Table(found, tokens, shape["flops_per_token"], skipped)

    def tables(self) -> Iterator[tuple[str, Table]]:
        """All of them."""
        for dtype in DTYPES:
            yield dtype, self.table_of(dtype)


def processor() -> str:
    """Its name, and whether it multiplies bfloat16 matrices by itself."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    name = text.partition("model name")[2].partition("\n")[0].strip(" \t:") or platform.machine()
    return f"{name}, {'AMX' if 'amx_bf16' in text else 'no AMX'}"


if __name__ == "__main__":
    sys.exit(main())
