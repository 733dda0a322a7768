"""Our side of what `bench/encode.py` does: the same texts, to shards.

python -m bench.tokenize whole DIR WORKERS      # tokenizes and packs; all is read and written
python -m bench.tokenize pack DIR METHOD        # packs anew what `whole` has tokenized
python -m bench.tokenize verify WORKDIR         # a finished build

DIR is as `bench.tokens` makes it.
"""

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_tools import engines
from data_tools.engines import Engine
from data_tools.heldout import HeldoutConfig
from data_tools.pack.config import PackConfig
from data_tools.pack.partition import PACK
from data_tools.pack.plan import plan_shards
from data_tools.pack.verify import verify
from data_tools.stage import Commit, Input, Partition, Stage, StageResult, run_stage
from data_tools.tokenize import TOKENIZE
from jaxlm.data import manifest
from jaxlm.data.tokenizer import open_tokenizer

METHODS = ("concat", "best_fit")
SUMS = ("documents", "chunks", "tokens", "padding", "truncated")
"""What the report of a shard counts."""


class Work:
    """A directory with texts and a tokenizer, and where the stages write."""

    def __init__(self, directory: Path, workers: int):
        self._engine: Engine = engines.local(workers)
        self._out = directory / "ours"
        texts = sorted((directory / "texts").glob("*.parquet"))
        self._texts = {p.stem: (Input(p, p.stem, "text"),) for p in texts}
        self._types = json.loads((directory / "types.json").read_text(encoding="utf-8"))
        path = directory / "tokenizer.model"
        tokenizer = open_tokenizer(path)
        self._tokenizer = {n: getattr(tokenizer, n) for n in ("vocab_size", "bos_id", "pad_id")}
        self._model = (Input(path, "tokenizer", tokenizer.hash()),)

    def tokenize(self) -> Sequence[Commit]:
        """Ids of the documents; reused when they are there."""
        nothing = {"verdicts": (), "representatives": (), "tokenizer": self._model}
        texts = self._texts.items()
        partitions = [Partition(n, (), {"documents": t} | nothing) for n, t in texts]
        return self._run(TOKENIZE, partitions).commits

    def pack(self, tokenized: Sequence[Commit], method: str) -> Mapping[str, int]:
        """Shards of the documents; what they hold."""
        config = PackConfig(method)  # pyright: ignore[reportArgumentType]
        heldout = HeldoutConfig()
        shards = plan_shards(self._run, tokenized, self._types, config, heldout, self._tokenizer)
        sums = Counter[str]()
        for commit in self._run(PACK, shards).commits:
            sums.update({name: commit.report[name] for name in SUMS})
        return {"chunk_tokens": config.chunk_tokens} | dict(sums)

    def _run(self, stage: Stage[Any], partitions: Sequence[Partition[Any]]) -> StageResult:
        return run_stage(stage, partitions, self._out / stage.name, self._engine)

    def close(self) -> None:
        """Ends the workers."""
        self._engine.close()


def whole(directory: Path, workers: int) -> dict[str, float]:
    """Clock and processor seconds from tables of text to shards, and the number of ids."""
    shutil.rmtree(directory / "ours", ignore_errors=True)
    work = Work(directory, workers)
    start, before = time.perf_counter(), sum(os.times()[:4])
    counts = work.pack(work.tokenize(), "concat")
    work.close()
    seconds, cpu = time.perf_counter() - start, sum(os.times()[:4]) - before
    return {"seconds": seconds, "cpu_s": cpu, "tokens": counts["tokens"]}


def pack(directory: Path, method: str) -> dict[str, float]:
    """Seconds from tables of ids to shards, with one worker, and what these hold."""
    for stage in ("survey", "shuffle", "pack"):
        shutil.rmtree(directory / "ours" / stage, ignore_errors=True)
    work = Work(directory, workers=1)
    tokenized = work.tokenize()
    start = time.perf_counter()
    counts = work.pack(tokenized, method)
    return {"seconds": time.perf_counter() - start} | dict(counts)


def check(workdir: Path) -> dict[str, float]:
    """Seconds to verify a build, and the bytes of its shards and document tables."""
    start = time.perf_counter()
    *_, last = verify(workdir)
    seconds = time.perf_counter() - start
    print(last)
    shards = manifest.load(workdir / "manifest.json").shards
    return {"seconds": seconds, "bytes": sum(s.file_bytes + s.table_bytes for s in shards)}


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "whole":
        found = whole(Path(directory), int(rest[0]))
    elif command == "pack":
        found = pack(Path(directory), rest[0])
    else:
        found = check(Path(directory))
    print(json.dumps(found))
