"""`make faults`: runs the rows of the campaign and writes their table to `docs/faults.md`."""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from bench.faults.place import Outcome, Place, lost
from bench.faults.table import ROWS
from jaxlm.workdir import write_json, write_text

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "faults.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; 1 if a fault was not survived."""
    args = _parse(argv)
    if args.list:
        for name, row in ROWS.items():
            print(f"{name:<18}{row.tries:>3}  {row.means}")
        return 0
    names = args.rows.split(",") if args.rows else list(ROWS)
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        print(f"--rows={args.rows}: no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
        return 2
    # As in the tests: the runs of the campaign need no accelerator, and compare bits.
    os.environ |= {"JAX_PLATFORMS": "cpu"}
    jax.config.update("jax_platforms", "cpu")  # in this process it is imported already
    for name in names:
        kept = _kept(args.workdir, args.seed, name)
        if kept is None or args.again:
            _run(args.workdir, args.seed, name)
        else:
            print(f"{name}: kept, of {kept['time']}", flush=True)
    found = {name: kept for name in ROWS if (kept := _kept(args.workdir, args.seed, name))}
    write_text(args.page, page(found, args.seed))
    print(f"{len(found)} of {len(ROWS)} rows: {args.page}")
    return int(any(row["survived"] < ROWS[name].tries for name, row in found.items()))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--rows", metavar="NAME,...", help="only these")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--again", action="store_true", help="also rows that are done")
    parser.add_argument("--list", action="store_true", help="print the rows, and run none")
    parser.add_argument("--page", type=Path, default=PAGE, help="default docs/faults.md")
    parser.add_argument(
        "--workdir",
        type=lambda path: Path(path).absolute(),
        default=REPOSITORY / "runs" / "faults",
        help="where the runs lie, and what is done of the rows (default runs/faults)",
    )
    return parser.parse_args(argv)


def _run(workdir: Path, seed: int, name: str) -> None:
    row = ROWS[name]
    print(f"{name}: {row.tries} to try", flush=True)
    start_s = time.monotonic()
    try:
        outcome = row.run(Place(workdir / name, seed, row.tries))
    except Exception as e:
        outcome = Outcome(row.tries, 0, [lost(e)])
    result = {
        "seed": seed,
        "code": code(),
        "tried": outcome.tried,
        "survived": outcome.survived,
        "notes": outcome.notes,
        "minutes": (time.monotonic() - start_s) / 60,
        "time": time.strftime("%Y-%m-%d %H:%M"),
    }
    (workdir / "results").mkdir(exist_ok=True)
    write_json(workdir / "results" / f"{name}.json", result)
    print(f"{name}: {_cells(result)}", flush=True)


def _kept(workdir: Path, seed: int, name: str) -> dict[str, Any] | None:
    """What a row gave, if it was with this seed and this code."""
    try:
        result = json.loads((workdir / "results" / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    return result if (result["seed"], result["code"]) == (seed, code()) else None


def code() -> str:
    """Digest of what the rows run."""
    digest = hashlib.sha256()
    packages = [REPOSITORY / name for name in ("jaxlm", "launch", "bench/faults")]
    names = ("record_steps", "runs", "small_corpus", "stores")
    single = [REPOSITORY / "bench" / f"{name}.py" for name in names]
    for path in sorted([*single, *(p for package in packages for p in package.rglob("*.py"))]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def page(found: dict[str, dict[str, Any]], seed: int) -> str:
    """`docs/faults.md`."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "orbax-checkpoint"))
    times = sorted(row["time"] for row in found.values())
    minutes = sum(row["minutes"] for row in found.values())
    missing = ", ".join(name for name in ROWS if name not in found)
    lines = [
        "# The fault campaign",
        "",
        f"Made by `make faults` (`python -m bench.faults --seed={seed}`), "
        f"{times[0] if times else ''} to {times[-1] if times else ''}, on {os.cpu_count()} CPU "
        f"cores: {minutes:.0f} minutes. {versions}; code {code()}.",
        f"{len(found)} of {len(ROWS)} rows. All faults come to real processes that train a tiny "
        "model (2 layers, width 32) on a tiny corpus."
        + (f" Not run with this code: {missing}." if missing else ""),
        "",
        "| fault | tried | survived | lost | minutes | |",
        "|---|---|---|---|---|---|",
        *(f"| {name} | {_cells(row)} |" for name, row in found.items()),
        "",
        "What each row does, and what counts as survived:",
        "",
        *(f"- **{name}**: {ROWS[name].means}." for name in found),
        "",
    ]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> str:
    counts = (row["tried"], row["survived"], row["tried"] - row["survived"])
    notes = "; ".join(note.replace("|", "/") for note in row["notes"])
    return " | ".join((*map(str, counts), f"{row['minutes']:.1f}", notes))
