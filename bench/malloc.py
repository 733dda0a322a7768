"""What each setting of the allocator gives: speed of the step and peak memory, on a CPU.

Each measurement is a process of its own, since glibc reads them when it starts; rounds take turns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from jaxlm import allocator

DEMO = Path(__file__).resolve().parents[1] / "configs" / "demo.py"
CASES = ("demo", "float32", "bfloat16")
"""The demo's model of 1M parameters, and the one of `bench.step` of 56M."""


class Figures(NamedTuple):
    """Medians over the steps of a process."""

    step_s: float
    cpu_s: float
    """Of all threads; what else runs on the machine moves it less."""
    peak_bytes: int
    """Resident."""


def settings(parts_too: bool) -> dict[str, str]:
    """Name -> GLIBC_TUNABLES: nothing, all that a run sets; `parts_too`: all but one."""
    parts = {name: f"{name}={variable.value}" for name, variable in allocator.TUNABLES.items()}
    left_out = {f"without {n}": {k: v for k, v in parts.items() if k != n} for n in parts}
    sets = {"plain": {}, "as a run": parts, **(left_out if parts_too else {})}
    return {name: ":".join(chosen.values()) for name, chosen in sets.items()}


def main() -> int:
    """Prints a line a setting."""
    parser = argparse.ArgumentParser(prog="python -m bench.malloc", description=__doc__)
    parser.add_argument("--case", choices=CASES, default="demo")
    parser.add_argument("--seconds", type=float, default=10, help="of steps, a process")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", action="store_true", help="also all settings but one")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(measure(args.case, args.seconds)))
        return 0
    found: dict[str, list[Figures]] = {name: [] for name in settings(args.parts)}
    with tempfile.TemporaryDirectory() as programs:
        for number in range(args.rounds + 1):
            for name, tunables in settings(args.parts).items():
                figures = _fresh(args.case, args.seconds, tunables, programs)
                if not number:  # this one has compiled
                    break
                found[name].append(figures)
    for name, figures in found.items():
        pairs = list(zip(found["plain"], figures, strict=True))
        ratios = [plain.step_s / own.step_s for plain, own in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        of_cpu = statistics.median(plain.cpu_s / own.cpu_s for plain, own in pairs)
        step_s, cpu_s, peak = (statistics.median(column) for column in zip(*figures, strict=True))
        print(
            f"{name:<36}{step_s:>7.3f} s/step  {middle:>5.2f} times ({low:.2f} to {high:.2f})"
            f"  {cpu_s:>7.3f} CPU s/step  {of_cpu:>5.2f} times  peak {peak / 1e9:>6.2f} GB",
            flush=True,
        )
    return 0


def _fresh(case: str, seconds: float, tunables: str, programs: str) -> Figures:
    command = [sys.executable, "-m", "bench.malloc", f"--case={case}", f"--seconds={seconds}"]
    kept = {"JAX_COMPILATION_CACHE_DIR": programs, "JAX_PLATFORMS": "cpu"}
    set_here = {allocator.VARIABLE: tunables} if tunables else {}
    done = subprocess.run(
        [*command, "--inside"],
        env={**os.environ, **kept, **set_here},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Figures(*json.loads(done.stdout.splitlines()[-1]))


def measure(case: str, seconds: float) -> Figures:
    """Of this process."""
    from bench import step
    from jaxlm import config

    if case == "demo":
        rows = ("data.source=synthetic", "data.mixture=()", "optim.warmup=0 steps")
        cfg = config.load(DEMO, (*rows, "train.end=100000 steps"))
    else:
        cfg = step.config("float32" if case == "float32" else "bfloat16", "unroll")
    times: list[float] = []
    used: list[float] = []
    with step.trainer(cfg) as ours, ours.loader() as loader:
        ours.warm_up(next(loader))
        end = time.perf_counter() + seconds
        for batch in loader:
            before = time.process_time()
            times.append(ours.timed(batch).seconds)
            used.append(time.process_time() - before)
            if time.perf_counter() > end and len(times) >= 3:
                break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Figures(statistics.median(times), statistics.median(used), peak)


if __name__ == "__main__":
    sys.exit(main())
