"""The loader beside the demo's training: how many times as fast it could feed it.

A round is a short run of `jaxlm train` on the demo's corpus, then its loader alone, in one process
with nothing else running. All lies in a directory; its `data` holds the demo's corpus.
"""

import shutil
import statistics
import sys
from pathlib import Path

from bench.cli import fresh
from bench.watch import watch
from jaxlm import workdir

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
STEPS, EVERY = 120, 10
"""Of the run; its speed is the median over stretches of so many steps."""
LEAST = 20.0
"""Times the speed of training."""


def compare(directory: Path, rounds: int) -> list[str]:
    """Prints the table; returns the target if it is missed."""
    data, log = directory / "data", directory / "log"
    data.mkdir(parents=True, exist_ok=True)
    tools = [sys.executable, "-m", "data_tools"]
    watch([*tools, "sample", f"--workdir={data}"], log)
    watch([*tools, "build", f"--config={CONFIGS / 'data/demo.py'}", f"--workdir={data}"], log)
    pairs = [(_train(directory), fresh(_load, directory)) for _ in range(rounds)]
    train, load = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    ratio = statistics.median(load / train for train, load in pairs)
    print("\n| the demo, rows of 256 tokens, 4 a step | tokens/s |\n|---|---|")
    print(f"| training | {train:,.0f} |\n| its loader alone | {load:,.0f} |")
    print(f"\nThe loader is {ratio:.0f} times as fast.", flush=True)
    return [f"the loader is {ratio:.1f} times as fast, below {LEAST}"] if ratio < LEAST else []


def _train(directory: Path) -> float:
    """Tokens a second of the demo's training."""
    run = directory / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "jaxlm", "train", f"--workdir={run}"]
    command += [f"--config={CONFIGS / 'demo.py'}", f"--config.data.manifest={_manifest(directory)}"]
    command += [f"--config.train.end={STEPS} steps", f"--config.log.every={EVERY} steps"]
    watch(command, directory / "log")
    lines = workdir.metrics(run)
    return statistics.median(line["tokens_per_s"] for line in lines if "tokens_per_s" in line)


def _load(directory: Path) -> float:
    """Tokens a second of the loader, over all of the demo's batches."""
    from bench import loader  # JAX, which the process that prints does without
    from jaxlm import config

    cfg = config.load(CONFIGS / "demo.py", (f"data.manifest={_manifest(directory)}",))
    return loader.measure_run(cfg).tokens_per_s


def _manifest(directory: Path) -> Path:
    return directory / "data" / "manifest.json"
