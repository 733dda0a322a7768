"""`jaxlm trace` in a run of a million steps over millions of documents: how long a look-up takes.

python -m bench.trace --dir=DIR

DIR/data/   a corpus of documents made of pieces of real text, packed as a build packs them
DIR/run/    the small files of a run on it: three batch sizes, a thousand skipped windows

Whole commands are timed, each a new process; beside the clock stands the processor's time, which
other work on the machine changes less.
"""

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.watch import watch
from data_tools.pack.config import PackConfig
from data_tools.pack.partition import CHUNKS, ShardConfig, pack_partition
from data_tools.pack.shuffle import SCHEMA, SHARDS, SHUFFLED
from data_tools.stage import Input, Partition
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.sample import pieces
from data_tools.tokenizer.train import MODEL, train_model
from jaxlm import workdir
from jaxlm.config import Config, DataConfig, ModelConfig, TrainConfig
from jaxlm.data import fingerprint
from jaxlm.data import manifest as manifests
from jaxlm.data.corpus import open_corpus
from jaxlm.data.documents import TABLE, order_key, shard_of
from jaxlm.data.manifest import Manifest, Mixture, Shard
from jaxlm.data.skips import Skips
from jaxlm.data.tokenizer import Tokenizer, open_tokenizer
from jaxlm.schema import to_dict
from jaxlm.workdir import Start

SOURCE, VOCAB_SIZE = "web", 8_000
PACK = PackConfig()
STAGES = ((0.0, 8), (0.4, 64), (0.7, 256))
"""(Share of the steps, rows of a batch from there on)."""
WINDOWS, WINDOW_ROWS = 1_000, 64
"""Skipped, of so many rows each."""
MOST = 1.0
"""Seconds of a command, the median."""


class Timed(NamedTuple):
    """A command, several times."""

    clock: list[float]
    processor: list[float]
    lines: int
    """That it printed, the last time."""


def main() -> int:
    """Prints the table; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs/bench-trace"))
    parser.add_argument("--documents", type=int, default=8_000_000)
    parser.add_argument("--tokens", type=int, default=40, help="of a document, on average")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    shutil.rmtree(args.dir, ignore_errors=True)
    ids = make_corpus(args.dir / "data", args.documents, args.tokens, args.shards)
    make_run(args.dir / "run", args.dir / "data", args.steps)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs; {args.documents:,} documents of")
    print(f"{args.tokens} tokens, {args.steps:,} steps, {WINDOWS:,} skipped windows\n")
    print("| `jaxlm trace` | lines | seconds, median | most | processor seconds |")
    print("|---|---:|---:|---:|---:|")
    missed = []
    for name, commands in looks(ids, args.steps, args.rounds):
        timed = time_commands(args.dir, commands)
        clock = statistics.median(timed.clock)
        row = f"{timed.lines:,} | {clock:.2f} | {max(timed.clock):.2f}"
        print(f"| {name} | {row} | {statistics.median(timed.processor):.2f} |", flush=True)
        if clock > MOST:
            missed.append(f"{name}: {clock:.2f} s, above {MOST}")
    for line in missed:
        print(f"target missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def looks(ids: Sequence[str], last: int, rounds: int) -> Iterator[tuple[str, list[list[str]]]]:
    """What is looked up: a name, and the arguments of the command, another each time."""
    rng = random.Random(1)
    for first, end, rows in stages(last):
        steps = [f"--step={rng.randrange(first, end) + 1}" for _ in range(rounds)]
        yield f"a step of {rows} rows", [[step] for step in steps]
        if end == last:
            yield f"a row of {rows}", [[s, f"--row={rng.randrange(rows)}"] for s in steps]
    yield "a document", [[f"--document={id}"] for id in rng.sample(ids, rounds)]


def time_commands(directory: Path, commands: Sequence[Sequence[str]]) -> Timed:
    """Each once; the files are in the page cache, as they are just made or read."""
    base = [sys.executable, "-m", "jaxlm", "trace", f"--workdir={directory / 'run'}"]
    timed = Timed([], [], 0)
    for arguments in commands:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seen = watch([*base, *arguments], directory / "log")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        timed.clock.append(seen.seconds)
        timed.processor.append(used)
        timed = timed._replace(lines=len(seen.output.splitlines()))
    return timed


# ---- what is looked up in ------------------------------------------------------------------------


def make_corpus(root: Path, documents: int, tokens: int, shard_count: int) -> list[str]:
    """Writes a corpus of one source; the ids of some documents.

    Lengths are from a fifth of `tokens` to nine fifths; a document is a stretch of the tokens of
    Python's reference.
    """
    root.mkdir(parents=True)
    texts = [piece for name in sorted(topics) for piece in pieces(topics[name])]
    config = TokenizerConfig(vocab_size=VOCAB_SIZE)
    (root / MODEL).write_bytes(train_model(config, texts))
    tokenizer = open_tokenizer(root / MODEL)
    pool = np.concatenate(tokenizer.encode_batch(texts)).astype("<u2")
    rng = np.random.default_rng(0)
    by_key = sorted((order_key(id, PACK.salt), id) for id in _ids(rng, documents))
    keys = np.array([key for key, _ in by_key], np.uint64)
    sizes = Counter(shard_of(key, shard_count) for key, _ in by_key)
    edges = np.cumsum([0, *(sizes[k] for k in range(shard_count))]).tolist()
    shards = []
    for k, (start, stop) in enumerate(itertools.pairwise(edges)):
        ids = [id for _, id in by_key[start:stop]]
        batch = _batch(rng, keys[start:stop], ids, pool, tokens)
        shards.append(_pack(root, f"{SOURCE}.train-{k:05d}-of-{shard_count:05d}", batch, tokenizer))
    manifest = Manifest(
        version=manifests.VERSION,
        tokenizer=MODEL,
        tokenizer_hash=tokenizer.hash(),
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        pad_id=tokenizer.pad_id,
        dtype="uint16",
        chunk_tokens=PACK.chunk_tokens,
        packing=PACK.method,
        mixture=Mixture((), 4.0, 0.01, {SOURCE: 1.0}),
        shards=tuple(shards),
        recipe={"pack": {"salt": PACK.salt}},
        counts={},
    )
    manifests.save(manifest, root / "manifest.json")
    return [id.hex() for _, id in random.Random(0).sample(by_key, min(documents, 1_000))]


def _ids(rng: np.random.Generator, documents: int) -> Iterator[bytes]:
    data = rng.bytes(16 * documents)
    return (data[i : i + 16] for i in range(0, len(data), 16))


def _batch(
    rng: np.random.Generator, keys: np.ndarray, ids: list[bytes], pool: np.ndarray, tokens: int
) -> pa.RecordBatch:
    """The documents of a shard, as the stage `shuffle` writes them."""
    length_N = rng.integers(tokens // 5, tokens * 9 // 5 + 1, len(ids))
    start_N = rng.integers(0, len(pool) - length_N.max(), len(ids))
    ends_N = np.cumsum(length_N)
    at = np.arange(ends_N[-1]) + np.repeat(start_N - ends_N + length_N, length_N)
    offsets = np.concatenate([[0], ends_N]) * pool.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(pool[at])]
    columns = {
        "key": keys,
        "id": ids,
        "content_hash": ids,
        "path": [f"crawl/{n % 1_000:05d}.warc.gz" for n in range(len(ids))],
        "offset": rng.integers(0, 2**30, len(ids)),
        "quality": rng.random(len(ids)).round(2),
        "cluster": [id if id[0] < 16 else None for id in ids],
        "text_bytes": 4 * length_N,
        "tokens": length_N,
    }
    arrays = [pa.array(columns[f.name], f.type) for f in SCHEMA if f.name != "ids"]
    packed = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ids), buffers)
    return pa.RecordBatch.from_arrays([*arrays, packed], schema=SCHEMA)


def _pack(root: Path, name: str, batch: pa.RecordBatch, tokenizer: Tokenizer) -> Shard:
    out = root / "shards" / name
    out.mkdir(parents=True)
    shuffled = root / SHUFFLED
    schema = SCHEMA.with_metadata({SHARDS: json.dumps([name]).encode()})
    with pa.OSFile(str(shuffled), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    config = ShardConfig(
        source=SOURCE,
        origin=SOURCE,
        type=SOURCE,
        split="train",
        method=PACK.method,
        salt=PACK.salt,
        chunk_tokens=PACK.chunk_tokens,
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        pad_id=tokenizer.pad_id,
    )
    inputs = {"documents": (Input(shuffled, "", ""),)}
    report = pack_partition(Partition(name, config, inputs), out)
    shuffled.unlink()
    counts = {n: report[n] for n in ("chunks", "tokens", "text_bytes", "documents")}
    file, table = out / CHUNKS, out / TABLE
    return Shard(
        path=str(file.relative_to(root)),
        source=SOURCE,
        type=SOURCE,
        split="train",
        file_bytes=file.stat().st_size,
        sha256=manifests.sha256(file),
        table_bytes=table.stat().st_size,
        table_sha256=manifests.sha256(table),
        **counts,
    )


def stages(steps: int) -> list[tuple[int, int, int]]:
    """(First step, end, rows of a batch) of each, counted from 0."""
    first = [round(share * steps) for share, _ in STAGES]
    return list(zip(first, [*first[1:], steps], (rows for _, rows in STAGES), strict=True))


def make_run(directory: Path, data: Path, steps: int) -> None:
    """Writes the small files of a run that has done all its steps, as the trainer leaves them."""
    directory.mkdir()
    ranks = np.cumsum([0, *((end - first) * rows for first, end, rows in stages(steps))])
    whole = ranks[-1] + WINDOWS * WINDOW_ROWS
    starts = np.linspace(0, whole, WINDOWS, endpoint=False).astype(int) + STAGES[0][1]
    windows = [[start, start + WINDOW_ROWS] for start in starts.tolist()]
    *positions, end = Skips(windows).at(ranks).tolist()
    batch_size = STAGES[-1][1]
    end += -end % batch_size  # a run ends with a whole batch
    vocab_size = manifests.load(data / "manifest.json").vocab_size
    cfg = Config(
        model=ModelConfig(vocab_size=vocab_size),
        data=DataConfig(manifest=str((data / "manifest.json").absolute()), max_epochs=1e6),
        train=TrainConfig(batch_size=batch_size, end=f"{end} rows"),
    )
    workdir.write_json(directory / "config.json", to_dict(cfg))
    digest = fingerprint.digest(open_corpus(cfg).train.fingerprint())
    for (step, _, rows), position in zip(stages(steps), positions, strict=True):
        start = Start(step, position, rows, 1, 1, [1, 1, 1], digest, windows, [], "2026")
        workdir.append_start(directory, start)
    workdir.write_status(directory, "done", steps, end, end, saved=steps)


if __name__ == "__main__":
    sys.exit(main())
