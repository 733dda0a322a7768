"""What a build leaves beside its shards: tokenizer, manifest, clusters of near duplicates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data_tools.dedup.clusters import CLUSTERS
from data_tools.document import DataError
from data_tools.pack import CHUNKS
from data_tools.recipe import Recipe
from data_tools.stage import Commit, StageResult
from data_tools.tokenize import id_dtype
from data_tools.tokenizer.train import MODEL
from jaxlm.data import manifest
from jaxlm.schema import to_dict


def write_manifest(
    workdir: Path,
    recipe: Recipe,
    model: Commit,
    packed: StageResult,
    counts: Mapping[str, Any],
) -> None:
    """Writes tokenizer.model, then manifest.json, beside the shards."""
    shards = tuple(_shard(commit) for commit in packed.commits if commit.report["documents"])
    if not any(shard.split == "train" for shard in shards):
        raise DataError(
            f"config.heldout.fraction={recipe.heldout.fraction} holds out every document; lower it"
        )
    temporary = workdir / f"{MODEL}.tmp"
    temporary.write_bytes((model.directory / MODEL).read_bytes())
    temporary.replace(workdir / MODEL)
    tokenizer = model.report
    whole = manifest.Manifest(
        version=manifest.VERSION,
        tokenizer=MODEL,
        tokenizer_hash=tokenizer["hash"],
        vocab_size=tokenizer["vocab_size"],
        bos_id=tokenizer["bos_id"],
        pad_id=tokenizer["pad_id"],
        dtype="uint16" if id_dtype(tokenizer["vocab_size"]).itemsize == 2 else "uint32",
        chunk_tokens=recipe.pack.chunk_tokens,
        shards=shards,
        recipe=to_dict(recipe),
        counts=counts,
    )
    manifest.save(whole, workdir / "manifest.json")


def write_clusters(workdir: Path, near: StageResult) -> None:
    """Writes clusters.parquet (`dedup.clusters.CLUSTERS`): which documents say nearly the same."""
    temporary = workdir / "clusters.parquet.tmp"
    with pq.ParquetWriter(temporary, CLUSTERS, compression="zstd") as table:
        for commit in near.commits:
            for piece in commit.input("clusters.parquet"):
                table.write_table(pq.read_table(piece.path))
    temporary.replace(workdir / "clusters.parquet")


def _shard(commit: Commit) -> manifest.Shard:
    report, records = commit.report, commit.outputs[CHUNKS]
    return manifest.Shard(
        path=f"{commit.directory.parent.name}/{commit.partition}/{CHUNKS}",
        source=report["source"],
        type=report["type"],
        split=report["split"],
        chunks=report["chunks"],
        tokens=report["tokens"],
        text_bytes=report["text_bytes"],
        file_bytes=records.bytes,
        sha256=records.sha256,
    )
