"""`python -m bench [step|loader|shards|host|start]`: prints a table.

Each part runs in a fresh process.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxlm import allocator, platforms

if TYPE_CHECKING:
    from bench.host import HostFigures
    from bench.loader import LoaderFigures, ManyShards
    from bench.start import StartFigures
    from bench.step import Dtype, Layers, StepFigures

PARTS = ("step", "loader", "shards", "host", "start")
DTYPES: "tuple[Dtype, ...]" = ("float32", "bfloat16")
LOADER_BATCHES = 1_000
SHARDS = (200, 1_000)

LEAST_RATIO, MOST_SHARE = 0.97, 0.01
"""Targets: the trainer's speed in shares of plain JAX's, the loader's time in shares of a step."""
LEAST_CORE_TOKENS = 20e6
"""A second of one core, rows of 2,048."""
MOST_DISPATCH_S, MOST_WAIT = 1e-3, 0.001
"""At the demo's size: seconds in which the host hands over a step, and its wait for rows in shares
of it, both medians."""


def main() -> int:
    """Runs what is asked for; returns 1 if a target is missed."""
    args = parser().parse_args()
    platforms.choose()
    parts = PARTS if args.part == "all" else (args.part,)
    found: dict[str, Any] = {"cpus": os.cpu_count(), "jax": version("jax"), "layers": args.layers}
    missed: list[str] = []
    print(f"{os.cpu_count()} CPUs, JAX {version('jax')}; 8 rows of 512 tokens a step", flush=True)
    steps = {}
    for dtype in DTYPES if "step" in parts else ():
        steps[dtype] = figures = fresh(_step, dtype, args.layers, args.seconds)
        found[f"step_{dtype}"] = figures._asdict()
        show(f"step, {dtype}, 56M parameters, {args.layers}", step_lines(figures))
        if figures.ratio < LEAST_RATIO:
            missed.append(f"{dtype}: trainer / plain is {figures.ratio:.3f}, below {LEAST_RATIO}")
    if "loader" in parts:
        figures = fresh(_loader, LOADER_BATCHES)
        shares = {d: figures.batch_s * s.tokens_per_s / s.batch_tokens for d, s in steps.items()}
        found["loader"] = {**figures._asdict(), "shares": shares}
        show("loader, real shards, warm", loader_lines(figures, shares))
        missed += [
            f"{dtype}: the loader takes {share:.2%} of a step, above {MOST_SHARE:.0%}"
            for dtype, share in shares.items()
            if share > MOST_SHARE
        ]
    if "shards" in parts:
        many = [fresh(_many_shards, shards, LOADER_BATCHES) for shards in SHARDS]
        found["shards"] = [figures._asdict() for figures in many]
        show("loader, rows of 2,048, 5 weighted sources, shuffled over all", many_lines(many))
        missed += [
            f"{f.shards} shards: {f.core_tokens_per_s:,.0f} tokens/s a core, below 20M"
            for f in many
            if f.core_tokens_per_s < LEAST_CORE_TOKENS
        ]
    if "host" in parts:
        figures = fresh(_host)
        found["host"] = figures._asdict()
        show("loop of `jaxlm train`, the demo's model", host_lines(figures))
        if figures.dispatch_s > MOST_DISPATCH_S:
            missed.append(f"dispatch takes {figures.dispatch_s * 1e3:.2f} ms, above 1 ms")
        if figures.wait_s > MOST_WAIT * figures.step_s:
            missed.append(f"a step waits {figures.wait_s * 1e6:.0f} us for rows, above 0.1% of it")
    if "start" in parts:
        figures = fresh(_start)
        found["start"] = {name: p._asdict() for name, p in figures._asdict().items()}
        show("start of `jaxlm train`, the demo's model, seconds", start_lines(figures))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for line in missed:
        print(f"target missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the trainer on this machine; all of it takes 5 minutes on 2 cores.",
        epilog="exit codes: 0 done; 1 a target is missed, or the trainer and plain JAX disagree",
    )
    parser.add_argument("part", nargs="?", choices=("all", *PARTS), default="all")
    parser.add_argument("--layers", choices=("scan", "unroll"), default="unroll", help="trainer's")
    parser.add_argument(
        "--seconds", type=float, default=60, metavar="S", help="of timing, a type (default: 60)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures there too")
    return parser


def fresh[*A, T](call: Callable[[*A], T], *args: *A) -> T:
    """The call's result from a process of its own: nothing compiled, cached or allocated.

    On a CPU with the allocator of a run, for all that is timed there.
    """
    context, before = multiprocessing.get_context("spawn"), dict(os.environ)
    if platforms.is_cpu():
        os.environ.update(allocator.environment())
    try:
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(call, *args).result()
    finally:
        os.environ.clear()
        os.environ.update(before)


def show(title: str, lines: Iterable[tuple[str, str]]) -> None:
    """A block of the table."""
    print(f"\n{title}")
    for name, value in lines:
        print(f"  {name:<40}{value}", flush=True)


def step_lines(f: "StepFigures") -> list[tuple[str, str]]:
    """A step's block."""
    low, high = f.ratio_spread
    return [
        ("trainer, tokens/s", f"{f.tokens_per_s:>10,.0f}"),
        ("plain JAX, tokens/s", f"{f.plain_tokens_per_s:>10,.0f}"),
        (
            "trainer / plain",
            f"{f.ratio:>10.3f}  (half of {f.rounds} rounds: {low:.3f} to {high:.3f})",
        ),
        ("host dispatch a step, ms", f"{f.dispatch_s * 1e3:>10.2f}"),
        ("peak memory of the trainer, GB", f"{f.peak_bytes / 1e9:>10.2f}"),
        ("checkpoint: loop stalls, s", f"{f.save_stall_s:>10.2f}"),
        ("checkpoint: committed after, s", f"{f.save_s:>10.2f}"),
    ]


def loader_lines(f: "LoaderFigures", shares: dict[str, float]) -> list[tuple[str, str]]:
    """The loader's block."""
    return [
        ("tokens/s", f"{f.tokens_per_s:>10,.0f}"),
        ("tokens/s of one core's time", f"{f.core_tokens_per_s:>10,.0f}"),
        ("a batch, ms", f"{f.batch_s * 1e3:>10.2f}"),
        *((f"share of a step, {dtype}", f"{share:>10.3%}") for dtype, share in shares.items()),
    ]


def many_lines(found: "list[ManyShards]") -> Iterator[tuple[str, str]]:
    """The block of corpora of many shards."""
    for f in found:
        yield f"{f.shards:,} shards, tokens/s", f"{f.tokens_per_s:>10,.0f}"
        yield "  of one core's time", f"{f.core_tokens_per_s:>10,.0f}"
        yield "  memory grows, MB", f"{f.grown_bytes / 1e6:>10.1f}"
        yield "  open shards", f"{f.files:>10}"


def host_lines(f: "HostFigures") -> list[tuple[str, str]]:
    """The loop's block."""
    return [
        ("a step, ms", f"{f.step_s * 1e3:>10.2f}"),
        ("host dispatch a step, ms", f"{f.dispatch_s * 1e3:>10.2f}"),
        ("wait for the rows of a step, us", f"{f.wait_s * 1e6:>10.0f}"),
        ("  share of the step", f"{f.wait_s / f.step_s:>10.3%}"),
        ("shares of the whole loop: waits for rows", f"{f.data_share:>10.3%}"),
        (f"  {f.reports} reports", f"{f.report_share:>10.3%}"),
        (f"  {f.saves} saves, what steps wait", f"{f.save_share:>10.3%}"),
        (f"  {f.evaluations} evaluations", f"{f.evaluate_share:>10.3%}"),
        ("steps beside a save / other steps", f"{f.beside_save:>10.2f}"),
    ]


def start_lines(f: "StartFigures") -> list[tuple[str, str]]:
    """The start's block."""
    columns = f._asdict()
    return [
        ("", "".join(f"{name:>10}" for name in columns)),
        *(
            (what, "".join(f"{getattr(parts, name):>10.1f}" for parts in columns.values()))
            for what, name in (
                ("imports", "imports_s"),
                ("tracing and compiling", "compile_s"),
                ("checks, state, held-out loss, the step", "rest_s"),
                ("command to the end of the first step", "first_step_s"),
            )
        ),
    ]


# The parts import JAX, which the process that prints the table does without.


def _step(dtype: "Dtype", layers: "Layers", seconds: float) -> "StepFigures":
    from bench import step

    return step.measure(dtype, layers, seconds)


def _loader(batches: int) -> "LoaderFigures":
    from bench import loader

    return loader.measure(batches)


def _many_shards(shards: int, batches: int) -> "ManyShards":
    from bench import loader

    return loader.measure_many(shards, batches)


def _host() -> "HostFigures":
    from bench import host

    return host.measure()


def _start() -> "StartFigures":
    from bench import start

    return start.measure()
