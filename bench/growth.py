"""`make bench-growth`: what a step costs with layers, width, sequence or batch doubled.

Time beside the FLOPs of the model, memory beside the plan's formula; each measurement is a process
of its own, and rounds take turns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxlm import allocator, platforms

if TYPE_CHECKING:
    from jaxlm.config import Config

ROOT = Path(__file__).parents[1]
BASE = "the model of `bench.step`"
CASES: dict[str, dict[str, Any]] = {
    BASE: {},
    "layers, 16": {"n_layers": 16},
    "width, 1,024": {"d_model": 1024, "n_heads": 16, "n_kv_heads": 8, "d_ff": 2816},
    "sequence, 1,024": {"seq_len": 1024},
    "batch, 16": {"batch_size": 16},
}
"""What is doubled -> fields of the model, of the data or of the batch."""
DTYPES = ("bfloat16", "float32")
STEPS = 6


class Figures(NamedTuple):
    """Of a process."""

    step_s: float
    """Median."""
    flops: float
    """Of a step, of the model alone (`metrics.flops_per_token`)."""
    bytes: int
    """Of a step's arguments, results and temporaries, by the compiler's account."""
    expected_bytes: float
    """By `plan.estimate`."""
    peak_bytes: int
    """Resident, of the whole process, compilation included."""


def config(dtype: str, changes: Mapping[str, Any]) -> "Config":
    """The config of `bench.step` with these fields changed."""
    from bench import step

    base = step.config("float32" if dtype == "float32" else "bfloat16", "unroll")
    parts = {"model": base.model, "data": base.data, "train": base.train}
    for field, value in changes.items():
        [name] = [name for name, part in parts.items() if hasattr(part, field)]
        parts[name] = replace(parts[name], **{field: value})
    return replace(base, **parts)


def measure(dtype: str, case: str) -> Figures:
    """Of this process."""
    from bench import step
    from jaxlm.metrics import flops_per_token
    from jaxlm.plan import estimate

    cfg = config(dtype, CASES[case])
    with step.trainer(cfg) as ours, ours.loader() as loader:
        used = ours.compiled(next(loader)).memory_analysis()
        ours.warm_up(next(loader))
        times = [ours.timed(batch).seconds for batch, _ in zip(loader, range(STEPS), strict=False)]
        shape = dict(ours.run.mesh.shape)
    assert used is not None
    held = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    return Figures(
        step_s=statistics.median(times),
        flops=flops_per_token(cfg.model, cfg.data.seq_len) * cfg.batch_tokens,
        bytes=held + used.temp_size_in_bytes,
        expected_bytes=estimate.memory(cfg, shape, estimate.state(cfg)),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def main() -> int:
    """Prints a table a type."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--dtype", choices=DTYPES, help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", metavar="CASE", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    platforms.choose()
    if args.inside is not None:
        print(json.dumps(measure(args.dtype, args.inside)))
        return 0
    for dtype in DTYPES if args.dtype is None else [args.dtype]:
        found = measured(dtype, args.rounds)
        print(f"\n{dtype}, {os.cpu_count()} CPUs, medians of {args.rounds} processes\n")
        print("\n".join(table(found)), flush=True)
    return 0


def measured(dtype: str, rounds: int) -> dict[str, list[Figures]]:
    """Of each case, a process a round."""
    found: dict[str, list[Figures]] = {case: [] for case in CASES}
    for number in range(1, rounds + 1):
        for case, figures in found.items():
            figures.append(_fresh(dtype, case))
            print(f"{dtype}, round {number}: {case}: {figures[-1].step_s:.3f} s", file=sys.stderr)
    return found


def table(found: Mapping[str, list[Figures]]) -> list[str]:
    """A line a case, of Markdown; the base comes first, and ratios are to it."""
    lines = [
        "| doubled | s a step | times the base | its FLOPs | time / FLOPs | GB | times the base "
        "| by formula | resident GB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = found[BASE]
    for case, figures in found.items():
        pairs = zip(figures, base, strict=True)
        slower = statistics.median(own.step_s / of_base.step_s for own, of_base in pairs)
        own, of_base = figures[0], base[0]
        flops, grown = own.flops / of_base.flops, own.bytes / of_base.bytes
        expected = own.expected_bytes / of_base.expected_bytes
        lines.append(
            f"| {case} | {statistics.median(f.step_s for f in figures):.3f} | {slower:.2f} "
            f"| {flops:.2f} | {slower / flops:.2f} | {own.bytes / 1e9:.2f} | {grown:.2f} "
            f"| {expected:.2f} | {max(f.peak_bytes for f in figures) / 1e9:.1f} |"
        )
    return lines


def _fresh(dtype: str, case: str) -> Figures:
    done = subprocess.run(
        [sys.executable, "-m", "bench.growth", f"--dtype={dtype}", f"--inside={case}"],
        env=allocator.environment() if platforms.is_cpu() else None,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return Figures(*json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
