"""The whole way on one machine: raw text, corpus, training, held-out loss, text; then a summary.

Each part is a command that can be run by itself, and is printed before it is run. What is done is
not done again, so a demo that was killed goes on where it stopped.
"""

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from jaxlm import commands, config, models, sample, workdir
from jaxlm.config import Config
from jaxlm.data import manifest as manifests
from jaxlm.data.manifest import Manifest
from jaxlm.errors import UserError
from jaxlm.run import Options
from jaxlm.signals import stop_signals
from jaxlm.train import train

CONFIGS = Path(__file__).parents[1] / "configs"
PROMPTS = {
    "book": "却说孔明谓众将曰：“",
    "encyclopedia": "The following statement is",
    "code": "import os\nimport sys\n\n\ndef",
}
"""Type -> how its sample begins; no space at the end, since pieces begin with theirs."""

SAMPLING = sample.Sampling(max_tokens=120, temperature=0.7, top_p=0.9)
"""Warm enough for a model of this size not to fall into loops of underscores."""


def demo(directory: Path) -> int:
    """Runs everything in `directory`; returns the exit code."""
    if not (CONFIGS / "demo.py").is_file():
        raise UserError(f"{CONFIGS}: no demo.py there; the demo needs a checkout of the repository")
    began = time.monotonic()
    data = directory / "data"
    recipe = CONFIGS / "data" / "demo.py"
    for command in (
        ["data_tools", "sample", f"--workdir={data}"],
        ["data_tools", "build", f"--config={recipe}", f"--workdir={data}"],
    ):
        if code := _run(command):
            return code
    manifest = manifests.load(data / "manifest.json")
    cfg = config.load(CONFIGS / "demo.py", (f"data.manifest={data / 'manifest.json'}",))
    _say(f"jaxlm train --config={CONFIGS / 'demo.py'} --workdir={directory}")
    with stop_signals(cfg.watch) as stop:
        code = train(cfg, directory, Options(), stop)
    if code:
        return code
    _say(f"jaxlm sample --workdir={directory} --prompt=...")
    texts = _samples(cfg, directory, manifest)
    summary = _summary(cfg, directory, manifest, texts, time.monotonic() - began)
    workdir.write_json(directory / "summary.json", summary)
    print("\n" + "\n".join(_lines(summary)), flush=True)
    return 0


def _say(command: str) -> None:
    print(f"\n==> {command}", flush=True)


def _run(command: list[str]) -> int:
    """Runs `python -m command`; a Ctrl-C, which both hear, is the command's to handle."""
    _say("python -m " + " ".join(command))
    with _patient():
        return subprocess.run([sys.executable, "-m", *command], check=False).returncode


@contextmanager
def _patient() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _samples(cfg: Config, directory: Path, manifest: Manifest) -> dict[str, str]:
    types = {shard.type for shard in manifest.shards}
    prompts = {name: text for name, text in PROMPTS.items() if name in types}
    found = commands.texts(cfg, directory, list(prompts.values()), SAMPLING)
    return dict(zip(prompts, found, strict=True))


def _summary(
    cfg: Config, directory: Path, manifest: Manifest, texts: dict[str, str], seconds: float
) -> dict[str, Any]:
    lines = workdir.metrics(directory)
    steps = [line for line in lines if "loss" in line]
    heldout = [line for line in lines if "loss" not in line]
    model = models.build(cfg.model)
    return {
        "counts": manifest.counts,
        "tokens": sum(s.tokens for s in manifest.shards),
        "trained_tokens": cfg.end * cfg.data.seq_len,
        "vocabulary": manifest.vocab_size,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.abstract())),
        "tokens_per_s": statistics.median(line["tokens_per_s"] for line in steps),
        "mfu": statistics.median(line["mfu"] or 0.0 for line in steps),
        "before": heldout[0],
        "after": heldout[-1],
        "samples": texts,
        "minutes": seconds / 60,
        "files": {
            "corpus": str(directory / "data" / "manifest.json"),
            "report of the cleaning": str(directory / "data" / "report.html"),
            "checkpoints": str(directory / "checkpoints"),
            "metrics": str(directory / "metrics.jsonl"),
            "tensorboard": str(directory / "tensorboard"),
            "this summary": str(directory / "summary.json"),
        },
    }


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    yield f"{'source':<14}{'read':>7}{'kept':>7}  dropped"
    for name, c in summary["counts"].items():
        dropped = ", ".join(f"{why} {n}" for why, n in c["dropped"].items()) or "-"
        yield f"{name:<14}{c['documents']:>7}{c['kept']:>7}  {dropped}"
    yield ""
    yield f"corpus {summary['tokens']:,} tokens, vocabulary {summary['vocabulary']:,}"
    yield (
        f"model {summary['parameters']:,} parameters, trained on {summary['trained_tokens']:,} "
        f"tokens at {summary['tokens_per_s']:,.0f} tokens/s, {summary['mfu']:.0%} of this "
        "machine's matrix product"
    )
    yield ""
    yield f"{'held-out':<14}{'loss before':>12}{'after':>8}{'bits/byte before':>18}{'after':>8}"
    for key in summary["after"]:
        if key.endswith("/loss"):
            name = key.split("/")[1]
            bits = f"heldout/{name}/bits_per_byte"
            before, after = summary["before"], summary["after"]
            yield (
                f"{name:<14}{before[key]:>12.3f}{after[key]:>8.3f}"
                f"{before[bits]:>18.3f}{after[bits]:>8.3f}"
            )
    for name, text in summary["samples"].items():
        yield f"\n--- a sample, {name}\n{text}"
    yield "\n--- files"
    for name, path in summary["files"].items():
        yield f"{name:<24}{path}"
    yield f"\ndone in {summary['minutes']:.1f} minutes (installation not counted)"
