"""Speed of the loader on real shards, warm in the page cache: how fast it could feed a step."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from data_tools.shards import write_shard
from jaxlm import mesh as mesh_lib
from jaxlm.config import DataConfig, MeshConfig
from jaxlm.data import manifest as manifests
from jaxlm.data.loader import Loader
from jaxlm.data.manifest import Manifest, Shard
from jaxlm.data.source import open_train
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticRows

BATCH, SEQ_LEN, VOCAB = 8, 512, 32_000
"""As in `bench.step`."""

SOURCES, SHARDS, CHUNKS = 5, 4, 512
"""Sources, shards of each, and records of a shard: 5M tokens, which a thousand batches repeat."""


class LoaderFigures(NamedTuple):
    """What `measure` saw."""

    tokens_per_s: float
    batch_s: float
    """From one batch to the next, nothing else running."""


def measure(batches: int) -> LoaderFigures:
    """Takes so many batches to the device, after 16 that are not timed."""
    with tempfile.TemporaryDirectory() as directory:
        data = DataConfig(manifest=str(make_corpus(Path(directory))), seq_len=SEQ_LEN)
        sharding = mesh_lib.rows_sharding(mesh_lib.make(MeshConfig(), jax.devices()[:1]))
        warm_up = 16
        end = (warm_up + batches) * BATCH
        with Loader(open_train(data, ()), sharding, BATCH, 0, end) as loader:
            for _ in range(warm_up):
                next(loader)
            start = time.perf_counter()
            for batch in loader:
                batch.rows_BT.block_until_ready()
            batch_s = (time.perf_counter() - start) / batches
    return LoaderFigures(BATCH * SEQ_LEN / batch_s, batch_s)


def make_corpus(root: Path) -> Path:
    """Writes shards of synthetic documents and their manifest; returns its path."""
    shards = []
    for i in range(SOURCES * SHARDS):
        path, source = root / f"{i:05d}.array_record", f"source-{i % SOURCES}"
        ids = SyntheticRows(i, CHUNKS * SEQ_LEN, VOCAB).rows(np.zeros(1, np.int64))[0]
        chunks = write_shard(path, ids, SEQ_LEN, PAD_ID)
        size, digest = path.stat().st_size, manifests.sha256(path)
        tokens = int((ids[1:] != BOS_ID).sum())
        shards.append(
            Shard(path.name, source, source, "train", chunks, tokens, 3 * tokens, size, digest)
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
        shards=tuple(shards),
        recipe={},
        counts={},
    )
    manifests.save(manifest, root / "manifest.json")
    return root / "manifest.json"
