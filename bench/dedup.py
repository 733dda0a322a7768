"""Our side of what `bench/peers.py` does: the same files, the same result.

python -m bench.dedup signatures INPUT
python -m bench.dedup whole INPUT WORKDIR WORKERS
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import PERMUTATIONS, WARM_UP, texts_of
from data_tools import engines
from data_tools.clean.partition import CLEAN, CleanConfig
from data_tools.dedup import near
from data_tools.dedup.config import NearConfig, ShingleConfig
from data_tools.dedup.minhash import signatures
from data_tools.dedup.shingles import batches, shingles
from data_tools.heldout import HeldoutConfig
from data_tools.read.partition import READ, plan
from data_tools.source import SourceConfig
from data_tools.stage import Partition, Stage, StageResult, run_stage

PARTITION_BYTES = 4 << 20


def sign(directory: Path) -> dict[str, float]:
    """Seconds from texts to signatures, on one core, the shingles included."""
    texts = list(texts_of(directory))
    _signatures(texts[:WARM_UP])
    start = time.perf_counter()
    timed = texts[WARM_UP:]
    for batch in batches([len(text) for text in timed]):
        _signatures(timed[batch])
    return {"seconds": time.perf_counter() - start}


def _signatures(texts: Sequence[str]) -> None:
    hash_S, bounds = shingles(texts, False, ShingleConfig())
    full_T = np.flatnonzero(np.diff(bounds))
    if len(full_T):
        bounds = np.append(bounds[full_T], len(hash_S))
        signatures(hash_S.astype(np.uint32), bounds, PERMUTATIONS, seed=1)


def whole(directory: Path, workdir: Path, workers: int) -> dict[str, float]:
    """Seconds from jsonl files to tables of the documents that stay: all is read and written."""
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    source = SourceConfig("texts", "web", "jsonl", str(directory.absolute()), ("*.jsonl",))
    start = time.perf_counter()
    engine = engines.local(workers)

    def run(stage: Stage[Any], partitions: Sequence[Partition[Any]]) -> StageResult:
        return run_stage(stage, partitions, workdir / stage.name, engine)

    read = run(READ, plan(source, workdir, PARTITION_BYTES))
    documents = {c.partition: c.input("documents.parquet") for c in read.commits}
    found = near.find(run, list(documents.items()), NearConfig(), HeldoutConfig(0))
    kept = run(
        CLEAN,
        [
            Partition(n, CleanConfig((), None, ()), {"documents": d, "verdicts": found.about(n)})
            for n, d in documents.items()
        ],
    )
    engine.close()
    return {
        "seconds": time.perf_counter() - start,
        "kept": sum(c.report["documents"] for c in kept.commits),
        "documents": sum(c.report["documents"] for c in read.commits),
    }


if __name__ == "__main__":
    command, inputs, *rest = sys.argv[1:]
    if command == "signatures":
        print(json.dumps(sign(Path(inputs))))
    else:
        print(json.dumps(whole(Path(inputs), Path(rest[0]), int(rest[1]))))
