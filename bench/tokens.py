"""Tokenizing and packing beside SentencePiece's own encode, packing methods, and `verify`.

DIR/<texts>/        the documents of a build that were tokenized: all, and those in Chinese
    texts/<partition>.parquet
    tokenizer.model             of the same build
    types.json                  source -> type
    ours/                       what `bench.tokenize` makes of them
"""

import json
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from bench.watch import Watched, watch
from data_tools.clean.measure import measure
from data_tools.document import DOCUMENTS, read_tables, table_writer
from data_tools.tokenize import TOKENS
from jaxlm.data import manifest

WORKERS = (1, 2)
METHODS = ("concat", "best_fit")
LEAST = 0.8
"""Of the speed of SentencePiece's encode."""


class Texts(NamedTuple):
    """What both sides read."""

    documents: int
    bytes: int


class Chosen(NamedTuple):
    """Which of the documents of a build both sides read."""

    keep: Callable[[str], bool]
    """Of a text."""
    copies: int
    """How often, so that the start of workers and the opening of the tokenizer weigh little."""


ALL = "all"
CHOSEN = {
    ALL: Chosen(lambda text: True, 1),
    "Chinese": Chosen(lambda text: measure(text).is_chinese, 5),
}
"""SentencePiece is faster on Chinese than on code, so that the rest of the work weighs more."""


def compare(corpus: Path, directory: Path, rounds: int) -> list[str]:
    """Prints the tables; returns the targets that are missed."""
    directory.mkdir(exist_ok=True)
    log = directory / "log"
    build = [sys.executable, "-m", "data_tools", "build"]
    watch([*build, f"--config={corpus / 'full.json'}", f"--workdir={corpus}"], log)
    texts = {name: write_texts(corpus, directory / name, name) for name in CHOSEN}
    ours = [sys.executable, "-m", "bench.tokenize"]
    commands = {"verify": [*ours, "verify", str(corpus)]}
    for name in CHOSEN:
        for workers in WORKERS:
            work = [str(directory / name), str(workers)]
            theirs = [sys.executable, "-m", "bench.encode", *work]
            commands |= {_ours(name, workers): [*ours, "whole", *work]}
            commands |= {_theirs(name, workers): theirs}
    for method in METHODS:
        commands[method] = [*ours, "pack", str(directory / ALL), method]
    found: dict[str, list[Watched]] = defaultdict(list)
    for _ in range(rounds):
        for name, arguments in commands.items():
            found[name].append(watch(arguments, log))
    figures = {n: [json.loads(w.output.splitlines()[-1]) for w in ws] for n, ws in found.items()}
    peaks = {n: statistics.median(w.peak_bytes for w in ws) for n, ws in found.items()}
    missed = [m for name in CHOSEN for m in show_encode(name, texts[name], figures, peaks)]
    show_packing(figures)
    show_verify(figures["verify"])
    return missed


def _ours(name: str, workers: int) -> str:
    return f"ours, {name}, {workers}"


def _theirs(name: str, workers: int) -> str:
    return f"SentencePiece, {name}, {workers}"


def write_texts(corpus: Path, directory: Path, name: str) -> Texts:
    """Writes the documents that the build tokenized, those of the name in `CHOSEN`, its tokenizer
    and its sources' types."""
    texts = directory / "texts"
    shutil.rmtree(texts, ignore_errors=True)
    texts.mkdir(parents=True)
    shutil.copy(corpus / "tokenizer.model", directory)
    sources = manifest.load(corpus / "manifest.json").recipe["sources"]
    types = json.dumps({s["name"]: s["type"] for s in sources})
    (directory / "types.json").write_text(types, encoding="utf-8")
    keep, copies = CHOSEN[name]
    documents = size = 0
    for stage in sorted((corpus / "stages" / "tokenize").iterdir()):
        ids = set(pq.read_table(stage / TOKENS, columns=["id"])["id"].to_pylist())
        clean = corpus / "stages" / "privacy" / stage.name / DOCUMENTS
        found = [d for d in read_tables([clean]) if d.id in ids and keep(d.text)]
        for copy in range(copies if found else 0):
            with table_writer(texts / f"{stage.name}{copy}.parquet") as write:
                for document in found:
                    write(document)
            documents += len(found)
            size += sum(len(d.text.encode()) for d in found)
    return Texts(documents, size)


def show_encode(
    name: str, texts: Texts, figures: Mapping[str, list[dict[str, Any]]], peaks: Mapping[str, float]
) -> list[str]:
    """Prints the table; returns the targets that are missed."""
    megabytes = texts.bytes / 1e6
    print(f"\nThe same {megabytes:.0f} MB of clean text, {name}: {texts.documents:,} documents.\n")
    print("| workers | | seconds | MB/s | processor seconds | peak MB | ours / theirs |")
    print("|---|---|---|---|---|---|---|")
    missed = []
    for workers in WORKERS:
        ours, theirs = _ours(name, workers), _theirs(name, workers)
        pairs = list(zip(figures[ours], figures[theirs], strict=True))
        assert all(o["tokens"] == t["tokens"] for o, t in pairs), "not the same ids"
        ratio, cpu = (
            statistics.median(t[what] / o[what] for o, t in pairs) for what in ("seconds", "cpu_s")
        )
        rows = {ours: ("text to shards", f"{ratio:.2f}; of processor time {cpu:.2f}")}
        rows[theirs] = ("SentencePiece, ids in memory", "")
        for side, (what_it_does, ratios) in rows.items():
            seconds, used = (
                statistics.median(f[what] for f in figures[side]) for what in ("seconds", "cpu_s")
            )
            row = f"{seconds:.1f} | {megabytes / seconds:.2f} | {used:.1f}"
            print(f"| {workers} | {what_it_does} | {row} | {peaks[side] / 1e6:.0f} | {ratios} |")
        if ratio < LEAST:
            missed.append(
                f"{name} text, workers={workers}: {ratio:.2f} of SentencePiece's speed, below "
                f"{LEAST}"
            )
    return missed


def show_packing(figures: Mapping[str, list[dict[str, Any]]]) -> None:
    """Prints what both methods make of the same ids."""
    size = figures[METHODS[0]][0]["chunk_tokens"]
    print(f"\n| packing, chunks of {size:,} | seconds | M tokens/s | chunks | padding | cut |")
    print("|---|---|---|---|---|---|")
    for method in METHODS:
        seconds = statistics.median(f["seconds"] for f in figures[method])
        of = figures[method][0]
        row = f"{seconds:.1f} | {of['tokens'] / 1e6 / seconds:.1f} | {of['chunks']:,}"
        padding = of["padding"] / (of["chunks"] * size)
        print(f"| {method} | {row} | {padding:.2%} | {of['truncated'] / of['documents']:.1%} |")
    print(
        "\nPadding: share of the ids. Cut: share of the documents that are not whole in one chunk."
    )


def show_verify(runs: list[dict[str, Any]]) -> None:
    """Prints how fast a build is read and checked."""
    seconds = statistics.median(f["seconds"] for f in runs)
    megabytes = runs[0]["bytes"] / 1e6
    print(f"\nverify: {megabytes:.0f} MB in {seconds:.1f} s, {megabytes / seconds:.0f} MB/s")
