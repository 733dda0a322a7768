"""Speed of the loader on real shards, warm in the page cache: how fast it could feed a step."""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from data_tools.pack.shards import write_shard
from jaxlm import mesh as mesh_lib
from jaxlm.config import Config, DataConfig, MeshConfig
from jaxlm.data import manifest as manifests
from jaxlm.data.cache import CacheConfig
from jaxlm.data.corpus import open_corpus
from jaxlm.data.files import open_files
from jaxlm.data.loader import Loader, Rows
from jaxlm.data.manifest import Manifest, Mixture, Shard
from jaxlm.data.order import Stage
from jaxlm.data.source import open_train
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticRows

BATCH, SEQ_LEN, VOCAB = 8, 512, 32_000
"""As in `bench.step`."""

SOURCES, SHARDS, CHUNKS = 5, 4, 512
"""Sources, shards of each, and records of a shard: 5M tokens, which a thousand batches repeat."""

WARM_UP = 16
"""Batches that are not timed."""

LONG_ROWS = 2_048
"""Tokens of a row of `measure_many`."""
MANY = {200: 128, 1_000: 64}
"""Shards -> records of each. One shuffle window has room for all of a source's shards, so rows come
from anywhere."""
WEIGHTS = (5.0, 4.0, 3.0, 2.0, 1.0)
"""Of the sources there."""
ROUNDS = 5


class LoaderFigures(NamedTuple):
    """What `measure` saw."""

    tokens_per_s: float
    batch_s: float
    """From one batch to the next, nothing else running."""
    core_tokens_per_s: float
    """Tokens a second of processor time, of all threads."""


class ManyShards(NamedTuple):
    """What `measure_many` saw: medians of rounds, each over other rows of the order."""

    shards: int
    tokens_per_s: float
    core_tokens_per_s: float
    grown_bytes: int
    """Resident memory at the end less that after the first round."""
    files: int
    """Shards open at the end."""


def measure(batches: int) -> LoaderFigures:
    """Takes so many batches of a corpus made for it to the device, after those that warm up."""
    with tempfile.TemporaryDirectory() as directory:
        data = DataConfig(manifest=str(make_corpus(Path(directory))), seq_len=SEQ_LEN)
        files = open_files(data.manifest, CacheConfig())
        return _measure(open_train(files, data, ()), BATCH, batches)


def measure_many(shards: int, batches: int) -> ManyShards:
    """Takes batches of a corpus of many shards, rounds of so many, to the device.

    Meant for a process of its own: memory and files are the process's.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = make_corpus(Path(directory), shards, MANY[shards], LONG_ROWS)
        data = DataConfig(manifest=str(path), seq_len=LONG_ROWS)
        weights = tuple((f"source-{i}", weight) for i, weight in enumerate(WEIGHTS))
        rows = open_train(open_files(data.manifest, CacheConfig()), data, [Stage(None, weights)])
        found, resident = [], []
        for i in range(ROUNDS + 1):
            found.append(_measure(rows, BATCH, batches, i * (WARM_UP + batches) * BATCH))
            resident.append(_resident_bytes())
        opened = (os.path.realpath(f) for f in Path("/proc/self/fd").iterdir())
        files = sum(name.startswith(os.path.realpath(directory)) for name in opened)
    return ManyShards(
        shards,
        statistics.median(f.tokens_per_s for f in found[1:]),
        statistics.median(f.core_tokens_per_s for f in found[1:]),
        resident[-1] - resident[0],
        files,
    )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure_run(cfg: Config) -> LoaderFigures:
    """Takes the batches of a run to the device, from first to last."""
    rows = open_corpus(cfg).train
    return _measure(rows, cfg.train.batch_size, cfg.end // cfg.train.batch_size - WARM_UP)


def _measure(rows: Rows, batch_size: int, batches: int, first: int = 0) -> LoaderFigures:
    sharding = mesh_lib.rows_sharding(mesh_lib.make(MeshConfig(), jax.devices()[:1]))
    end = first + (WARM_UP + batches) * batch_size
    with Loader(rows, sharding, batch_size, first, end) as loader:
        for _ in range(WARM_UP):
            next(loader)
        start, start_core = time.perf_counter(), time.process_time()
        for batch in loader:
            batch.rows_BT.block_until_ready()
        batch_s = (time.perf_counter() - start) / batches
        core_s = (time.process_time() - start_core) / batches
    tokens = batch_size * rows.seq_len
    return LoaderFigures(tokens / batch_s, batch_s, tokens / core_s)


def make_corpus(
    root: Path, count: int = SOURCES * SHARDS, chunks: int = CHUNKS, chunk_tokens: int = SEQ_LEN
) -> Path:
    """Writes shards of synthetic documents and their manifest, without document tables; returns
    its path. `count`: of the shards; `chunks`: of each."""
    shards = []
    for i in range(count):
        path, source = root / f"{i:05d}.array_record", f"source-{i % SOURCES}"
        ids = SyntheticRows(i, chunks * chunk_tokens, VOCAB).rows(np.zeros(1, np.int64))[0]
        write_shard(path, [ids], chunk_tokens)
        tokens = int((ids[1:] != BOS_ID).sum())
        shards.append(
            Shard(
                path=path.name,
                source=source,
                type=source,
                split="train",
                chunks=chunks,
                tokens=tokens,
                text_bytes=3 * tokens,
                file_bytes=path.stat().st_size,
                sha256=manifests.sha256(path),
                documents=len(ids) - tokens,
                table_bytes=0,
                table_sha256="",
            )
        )
    manifest = Manifest(
        version=manifests.VERSION,
        tokenizer="none",
        tokenizer_hash="none",
        vocab_size=VOCAB,
        bos_id=BOS_ID,
        pad_id=PAD_ID,
        dtype="uint16",
        chunk_tokens=chunk_tokens,
        packing="concat",
        mixture=Mixture((), 4.0, 0.01, {shard.source: 1.0 for shard in shards}),
        shards=tuple(shards),
        recipe={},
        counts={},
    )
    manifests.save(manifest, root / "manifest.json")
    return root / "manifest.json"
