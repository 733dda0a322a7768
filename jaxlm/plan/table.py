"""Every shipped config on every target that it names: `make plans` compiles them all.

python -m jaxlm.plan.table [--only=lm_7b] [--only=lm_7b:h100:4x8] [--processes=2] [--again]

Writes `docs/plans.json` after each row, then `docs/plans.md` and the headers of the configs. A row
is kept while nothing that it comes from has changed: its lowered program, its config, the chip's
data and the price. `--again` plans all of them, after a change to the planning itself.
"""

import argparse
import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from jaxlm import config, schema, workdir
from jaxlm.config import Config
from jaxlm.plan import pages, prices, program, report, target
from jaxlm.plan.target import Target

CONFIGS, ROWS, PAGE = Path("configs"), Path("docs/plans.json"), Path("docs/plans.md")
"""From the root of the repository."""

READ = ("model", "data", "loss", "optim", "train", "mesh")
"""Sections of a config that a row tells of."""


class Case(NamedTuple):
    """A row of the table."""

    path: Path
    target: str

    @property
    def name(self) -> str:
        """As in `--only`."""
        return f"{self.path.stem}:{self.target}"

    def load(self) -> tuple[Config, Target]:
        """The config for the target, and the target."""
        return config.load(f"{self.path}:{self.target}"), target.parse(self.target)


def cases(configs: Path = CONFIGS) -> list[Case]:
    """All rows, in order."""
    paths = sorted(configs.glob("*.py"), key=_size)
    return [Case(path, name) for path in paths for name in schema.targets(path)]


def _size(path: Path) -> tuple[int, str]:
    """Sorts lm_7b before lm_13b."""
    digits = "".join(filter(str.isdecimal, path.stem))
    return int(digits or 0), path.stem


def basis(cfg: Config, where: Target) -> str:
    """A hash of what a row comes from besides its program: config, chip and price."""
    price = prices.of(where.chip.name)
    parts = {
        "config": {name: schema.to_dict(getattr(cfg, name)) for name in READ},
        "chip": dataclasses.asdict(where.chip),
        "price": None if price is None else dataclasses.asdict(price),
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def is_current(case: Case, row: dict[str, Any] | None) -> bool:
    """Whether a row is that of the present program and figures; lowers, does not compile."""
    cfg, where = case.load()
    if row is None or row["basis"] != basis(cfg, where):
        return False
    return row["plan"]["digest"] == program.lower(cfg, where).digest


def make(case: Case) -> dict[str, Any]:
    """The row of a case: compiles it."""
    cfg, where = case.load()
    found = report.plan(cfg, where, report.Options(name=case.path.stem))
    return {
        "name": case.name,
        "date": date.today().isoformat(),
        "basis": basis(cfg, where),
        "plan": found.to_json(),
    }


def read(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Rows by name; none if the file is not there."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {row["name"]: row for row in rows}


def write(rows: dict[str, dict[str, Any]], order: Iterable[str], path: Path = ROWS) -> None:
    """Rows of cases that there are, in their order; others go."""
    data = {"command": pages.COMMAND, "rows": [rows[name] for name in order if name in rows]}
    workdir.write_json(path, data)


def main(argv: Sequence[str] | None = None) -> int:
    """Plans what is not current, and writes the pages; 1 if a row failed."""
    every = cases()
    args = _arguments(every, argv)
    if args.row:
        return _one(args.row, args.out, args.again)
    chosen = [c for c in every if not args.only or {c.name, c.path.stem} & set(args.only)]
    rows, order = read(), [case.name for case in every]
    failed = []
    with ThreadPoolExecutor(args.processes) as pool:
        waiting = {pool.submit(_apart, case, args.again): case.name for case in chosen}
        for done in as_completed(waiting):  # not in turn: what is made is kept
            name, row = waiting[done], done.result()
            if row is None:
                failed.append(name)
            else:
                rows[name] = row
                write(rows, order)
    write(rows, order)
    by_config = {c.path: [rows[d.name] for d in every if d.path == c.path and d.name in rows]
                 for c in every}  # fmt: skip
    missing = [name for name in order if name not in rows]
    workdir.write_text(PAGE, pages.page(by_config, missing))
    for path, own in by_config.items():
        workdir.write_text(path, pages.with_header(path.read_text(encoding="utf-8"), own))
    for name in failed:
        print(f"{name}: failed, see above", file=sys.stderr)
    return 1 if failed else 0


def _arguments(every: Sequence[Case], argv: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for; ends the program where that cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m jaxlm.plan.table", allow_abbrev=False)
    parser.add_argument("--only", action="append", metavar="CONFIG[:TARGET]")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--again", action="store_true", help="rows that are current, too")
    parser.add_argument("--row", metavar="CONFIG:TARGET", help="one row, into --out")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    if not every or not ROWS.parent.is_dir():
        parser.error(f"no {CONFIGS}/*.py or {ROWS.parent}/ here: run it at the repository's root")
    names, stems = [c.name for c in every], list(dict.fromkeys(c.path.stem for c in every))
    for only in args.only or []:
        if only not in (*names, *stems):
            parser.error(f"--only={only}: no such rows; known are {', '.join((*stems, *names))}")
    if args.row is not None and args.row not in names:
        parser.error(f"--row={args.row}: no such row; known are {', '.join(names)}")
    if (args.row is None) != (args.out is None):
        parser.error("--row and --out go together")
    if args.processes < 1:
        parser.error(f"--processes={args.processes}: must be at least 1")
    return args


def _apart(case: Case, again: bool) -> dict[str, Any] | None:
    """The row of a case by a process of its own, which gives its memory back; None if it failed."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "row.json"
        command = [sys.executable, "-m", "jaxlm.plan.table", f"--row={case.name}", f"--out={out}"]
        done = subprocess.run([*command, *(["--again"] if again else [])], check=False)
        if done.returncode:
            return None
        return json.loads(out.read_text(encoding="utf-8"))


def _one(name: str, out: Path, again: bool) -> int:
    case = next(case for case in cases() if case.name == name)
    row = read().get(name)
    if row is not None and not again and is_current(case, row):
        print(f"{name}: current", flush=True)
    else:
        print(f"{name}: compiling", flush=True)
        row = make(case)
        print(f"{name}: {row['plan']['compile_s']:.0f} s", flush=True)
    out.write_text(json.dumps(row), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
