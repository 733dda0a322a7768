"""`python -m bench.data --dir=DIR`: the build of the salted corpus, and its parts beside others'.

build    the whole of it, at three sizes
dedup    near dedup beside datatrove and datasketch
tokens   tokenizing and packing beside SentencePiece's encode, and the loader beside training

Everything lies under DIR: corpora, the peers' environment, their results. Rounds are interleaved,
each side in fresh processes; what is printed is the median. 40 minutes on 2 cores.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import feed, salted, tokens
from bench.watch import Watched, watch
from data_tools.document import read_tables

PEERS = ("datatrove[processing]==0.10.1", "spacy==3.8.18", "orjson==3.13.0", "datasketch==2.0.0")
ROOT = Path(__file__).parents[1]
SIZES = (1, 2, 4)
PARTS = {"build": SIZES, "dedup": (2,), "tokens": (4,)}
"""Part -> sizes of the corpora that it needs."""
LARGEST = 200.0
"""Megabytes of raw files at the size of 4."""
TEXT_SHARE, SIGNED_SHARE = 0.4, 0.05
"""Of the largest size: the text for the whole dedup, and for signatures alone."""
FILES = 8
STAGE = re.compile(r"^(\w+): \d+ run, 0 reused, ([\d.]+) s", re.MULTILINE)
FIXED = ("tokenizer",)
"""Stages whose work does not grow with the corpus."""
LINEAR = 1.15
TARGETS = {"signatures": 10.0, "pipeline": 8.0}


class Build(NamedTuple):
    """One run of the build."""

    seconds: float
    peak_bytes: int
    stages: Mapping[str, float]
    """Seconds of each, in order."""


def main() -> int:
    """Runs the parts asked for; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", choices=("all", *PARTS), default="all")
    parser.add_argument("--dir", type=Path, default=Path("runs/bench-data"))
    parser.add_argument("--megabytes", type=float, default=LARGEST, help="largest corpus")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    parts = tuple(PARTS) if args.part == "all" else (args.part,)
    sizes = sorted({size for part in parts for size in PARTS[part]})
    corpora = dict(make_corpora(args.dir, args.megabytes, sizes))
    missed = []
    if "build" in parts:
        missed += show_builds(corpora, builds(corpora, args.dir, args.rounds))
    if "dedup" in parts:
        make_peers(args.dir)
        missed += compare(corpora[2], args.dir, args.megabytes, args.rounds)
    if "tokens" in parts:
        missed += tokens.compare(corpora[4], args.dir / "tokens", args.rounds)
        missed += feed.compare(args.dir / "demo", args.rounds)
    for line in missed:
        print(f"target missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def make_corpora(root: Path, megabytes: float, sizes: Sequence[int]) -> Iterator[tuple[int, Path]]:
    """(Size, directory) of the corpora; those that are there are used."""
    for size in sizes:
        wanted = megabytes * size / SIZES[-1]
        out = root / f"corpus-{wanted:g}"
        if not (out / "inventory.json").is_file():
            missing = salted.build(out, (root / "cache").absolute(), wanted)
            assert not missing, f"a source of the corpus cannot be had: {missing}"
        yield size, out


# ---- the build -----------------------------------------------------------------------------------


def builds(corpora: Mapping[int, Path], root: Path, rounds: int) -> dict[int, list[Build]]:
    """Size -> its builds, each from nothing."""
    found: dict[int, list[Build]] = defaultdict(list)
    for _ in range(rounds):
        for size, out in corpora.items():
            for name in ("stages", "shards", "dropped"):
                shutil.rmtree(out / name, ignore_errors=True)
            command = [sys.executable, "-m", "data_tools", "build"]
            command += [f"--config={out / 'full.json'}", f"--workdir={out}"]
            seen = watch(command, root / "build.log")
            stages = {name: float(s) for name, s in STAGE.findall(seen.output)}
            found[size].append(Build(seen.seconds, seen.peak_bytes, stages))
    return found


def show_builds(corpora: Mapping[int, Path], found: Mapping[int, list[Build]]) -> list[str]:
    """Prints the tables; returns the targets that are missed."""
    bytes_ = {size: salted.size_of(out / "raw") for size, out in corpora.items()}
    largest = found[SIZES[-1]]
    raw = bytes_[SIZES[-1]]
    print(
        f"\n| stage, {raw / 1e6:.0f} MB of raw files, 2 workers | seconds | MB/s |\n|---|---|---|"
    )
    for stage in largest[0].stages:
        seconds = statistics.median(b.stages[stage] for b in largest)
        print(f"| {stage} | {seconds:.1f} | {raw / 1e6 / max(seconds, 0.05):.1f} |")
    whole = statistics.median(b.seconds for b in largest)
    print(f"| the command | {whole:.1f} | {raw / 1e6 / whole:.2f} |")
    print("\n| raw MB | seconds | of that, growing stages | peak memory, MB |\n|---|---|---|---|")
    growing = {}
    for size, runs in found.items():
        growing[size] = statistics.median(
            sum(s for name, s in b.stages.items() if name not in FIXED) for b in runs
        )
        seconds = statistics.median(b.seconds for b in runs)
        peak = statistics.median(b.peak_bytes for b in runs) / 1e6
        print(f"| {bytes_[size] / 1e6:.0f} | {seconds:.1f} | {growing[size]:.1f} | {peak:.0f} |")
    growth = growing[4] / growing[1] / (bytes_[4] / bytes_[1])
    print(f"\nTime a byte of the growing stages, 4x to 1x: {growth:.2f}.", flush=True)
    return [f"4x takes {growth:.2f} times as long a byte"] if growth > LINEAR else []


# ---- dedup beside others -------------------------------------------------------------------------


def make_peers(root: Path) -> None:
    """The peers' environment, as they ask to be installed."""
    if (root / "peers" / "installed").is_file():
        return
    log = root / "peers.log"
    watch([sys.executable, "-m", "venv", "--clear", str(root / "peers")], log)
    pip = [str(root / "peers/bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    watch([*pip, *PEERS], log)
    (root / "peers" / "installed").touch()


def write_texts(corpus: Path, directory: Path, size: float) -> float:
    """About `size` bytes of the corpus as it was read, as jsonl files; returns the megabytes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tables = sorted((corpus / "stages" / "read").glob("*/documents.parquet"))
    texts = [d.text for d in read_tables(tables)]
    random.Random(1).shuffle(texts)
    files = [(directory / f"{n}.jsonl").open("w", encoding="utf-8") for n in range(FILES)]
    written = 0
    for number, text in enumerate(texts):
        if written >= size:
            break
        line = json.dumps({"text": text, "id": str(number)}, ensure_ascii=False)
        files[number % FILES].write(line + "\n")
        written += len(text.encode())
    for file in files:
        file.close()
    return written / 1e6


def compare(corpus: Path, root: Path, megabytes: float, rounds: int) -> list[str]:
    """Prints the table; returns the targets that are missed."""
    command = [sys.executable, "-m", "data_tools", "read"]
    watch(
        [*command, f"--config={corpus / 'recipe.json'}", f"--workdir={corpus}"], root / "read.log"
    )
    few, many = root / "texts-few", root / "texts-many"
    signed = write_texts(corpus, few, megabytes * SIGNED_SHARE * 1e6)
    whole = write_texts(corpus, many, megabytes * TEXT_SHARE * 1e6)
    ours = [sys.executable, "-m", "bench.dedup"]
    # -P: beside the script lie modules named as those of the standard library
    theirs = [str(root / "peers/bin/python"), "-P", str(ROOT / "bench/peers.py")]
    commands = {
        "ours, signatures": [*ours, "signatures", str(few)],
        "datasketch, signatures": [*theirs, "signatures", str(few)],
        "ours, 1 worker": [*ours, "whole", str(many), str(root / "ours"), "1"],
        "datasketch, MinHashLSH": [*theirs, "lsh", str(many)],
        "ours, 2 workers": [*ours, "whole", str(many), str(root / "ours"), "2"],
        "datatrove, its example": [*theirs, "pipeline", str(many), str(root / "datatrove")],
        "datatrove, str.split": [*theirs, "split", str(many), str(root / "datatrove")],
    }
    found: dict[str, list[Watched]] = defaultdict(list)
    for _ in range(rounds):
        for name, arguments in commands.items():
            found[name].append(watch(arguments, root / "dedup.log"))
    return show_comparison(found, signed, whole)


def show_comparison(found: Mapping[str, list[Watched]], signed: float, whole: float) -> list[str]:
    """Prints the table; returns the targets that are missed."""
    figures = {n: [json.loads(w.output.splitlines()[-1]) for w in ws] for n, ws in found.items()}
    seconds = {n: statistics.median(w.seconds for w in ws) for n, ws in found.items()}
    seconds["ours, signatures"] = statistics.median(
        f["seconds"] for f in figures["ours, signatures"]
    )
    seconds["datasketch, signatures"] = statistics.median(
        f["update_s"] for f in figures["datasketch, signatures"]
    )
    print("\n| dedup of the same text | MB | seconds | MB/s | peak MB | ours is faster |")
    print("|---|---|---|---|---|---|")
    ratios: dict[str, float] = {}
    base = 0.0
    for name, runs in found.items():
        size = signed if name.endswith("signatures") else whole
        if name.startswith("ours"):
            base, ratio = seconds[name], ""
        else:
            ratios[name] = seconds[name] / base
            ratio = f"{ratios[name]:.1f} times"
        peak = statistics.median(w.peak_bytes for w in runs) / 1e6
        row = f"{size:.0f} | {seconds[name]:.2f} | {size / seconds[name]:.2f} | {peak:.0f}"
        print(f"| {name} | {row} | {ratio} |", flush=True)
    for name in ("ours, 2 workers", "datatrove, its example", "datasketch, MinHashLSH"):
        print(f"\n{name}: {figures[name][-1]}")
    least = {
        "datasketch, signatures": TARGETS["signatures"],
        "datatrove, its example": TARGETS["pipeline"],
    }
    return [
        f"{name}: ours is {ratios[name]:.1f} times as fast, below {target}"
        for name, target in least.items()
        if ratios[name] < target
    ]


if __name__ == "__main__":
    sys.exit(main())
