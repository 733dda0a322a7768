"""Speed of the loader on real shards, warm in the page cache: how fast it could feed a step."""

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
from jaxlm.data.source import open_train
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticRows

BATCH, SEQ_LEN, VOCAB = 8, 512, 32_000
"""As in `bench.step`."""

SOURCES, SHARDS, CHUNKS = 5, 4, 512
"""Sources, shards of each, and records of a shard: 5M tokens, which a thousand batches repeat."""

WARM_UP = 16
"""Batches that are not timed."""


class LoaderFigures(NamedTuple):
    """What `measure` saw."""

    tokens_per_s: float
    batch_s: float
    """From one batch to the next, nothing else running."""


def measure(batches: int) -> LoaderFigures:
    """Takes so many batches of a corpus made for it to the device, after those that warm up."""
    with tempfile.TemporaryDirectory() as directory:
        data = DataConfig(manifest=str(make_corpus(Path(directory))), seq_len=SEQ_LEN)
        files = open_files(data.manifest, CacheConfig())
        return _measure(open_train(files, data, ()), BATCH, batches)


def measure_run(cfg: Config) -> LoaderFigures:
    """Takes the batches of a run to the device, from first to last."""
    rows = open_corpus(cfg).train
    return _measure(rows, cfg.train.batch_size, cfg.end // cfg.train.batch_size - WARM_UP)


def _measure(rows: Rows, batch_size: int, batches: int) -> LoaderFigures:
    sharding = mesh_lib.rows_sharding(mesh_lib.make(MeshConfig(), jax.devices()[:1]))
    end = (WARM_UP + batches) * batch_size
    with Loader(rows, sharding, batch_size, 0, end) as loader:
        for _ in range(WARM_UP):
            next(loader)
        start = time.perf_counter()
        for batch in loader:
            batch.rows_BT.block_until_ready()
        batch_s = (time.perf_counter() - start) / batches
    return LoaderFigures(batch_size * rows.seq_len / batch_s, batch_s)


def make_corpus(root: Path) -> Path:
    """Writes shards of synthetic documents and their manifest, without document tables; returns
    its path."""
    shards = []
    for i in range(SOURCES * SHARDS):
        path, source = root / f"{i:05d}.array_record", f"source-{i % SOURCES}"
        ids = SyntheticRows(i, CHUNKS * SEQ_LEN, VOCAB).rows(np.zeros(1, np.int64))[0]
        write_shard(path, [ids], SEQ_LEN)
        tokens = int((ids[1:] != BOS_ID).sum())
        shards.append(
            Shard(
                path=path.name,
                source=source,
                type=source,
                split="train",
                chunks=CHUNKS,
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
        chunk_tokens=SEQ_LEN,
        packing="concat",
        mixture=Mixture((), 4.0, 0.01, {shard.source: 1.0 for shard in shards}),
        shards=tuple(shards),
        recipe={},
        counts={},
    )
    manifests.save(manifest, root / "manifest.json")
    return root / "manifest.json"
