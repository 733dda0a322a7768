"""What a build leaves beside its shards: tokenizer, manifest, clusters of near duplicates."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data_tools.dedup.clusters import CLUSTERS
from data_tools.document import DataError
from data_tools.mixture import in_manifest
from data_tools.pack.partition import CHUNKS
from data_tools.pack.pile import bucket_source
from data_tools.recipe import Recipe
from data_tools.stage import Commit, StageResult
from data_tools.tokenize import id_dtype
from data_tools.tokenizer.train import MODEL
from jaxlm.data import manifest
from jaxlm.data.documents import TABLE
from jaxlm.data.mixture import lines, plan_manifest, refusal
from jaxlm.data.plan import Plan
from jaxlm.schema import to_dict

DIRECTORY = "tokenizer"
"""Where the files of a tokenizer of Hugging Face's lie."""


def tokenizer_path(model: Commit) -> Path:
    """What `open_tokenizer` opens: a model file, or a directory of Hugging Face's."""
    return model.directory / MODEL if MODEL in model.outputs else model.directory


def write_corpus(
    workdir: Path,
    recipe: Recipe,
    model: Commit,
    packed: StageResult,
    counts: Mapping[str, Any],
) -> Plan | None:
    """Writes the tokenizer, then manifest.json, beside the shards.

    Returns the plan of the run that the recipe states, None if it states none. `DataError` when
    nothing is left to train on, or when the plan is further off than the recipe allows.
    """
    shards = tuple(_shard(commit) for commit in packed.commits)
    if not any(shard.split == "train" for shard in shards):
        raise DataError(
            f"config.heldout.fraction={recipe.heldout.fraction} (or config.heldout.types, or "
            "config.pack.exclude) leaves no document to train on; lower it"
        )
    tokenizer = model.report
    whole = manifest.Manifest(
        version=manifest.VERSION,
        tokenizer=_write_tokenizer(workdir, model),
        tokenizer_hash=tokenizer["hash"],
        vocab_size=tokenizer["vocab_size"],
        bos_id=tokenizer["bos_id"],
        pad_id=tokenizer["pad_id"],
        dtype="uint16" if id_dtype(tokenizer["vocab_size"]).itemsize == 2 else "uint32",
        chunk_tokens=recipe.pack.chunk_tokens,
        packing=recipe.pack.method,
        mixture=in_manifest(recipe.mixture, _source_weights(recipe)),
        shards=shards,
        recipe=to_dict(recipe),
        counts=counts,
    )
    plan = None
    if recipe.mixture.stages and recipe.mixture.tokens:
        plan = plan_manifest(whole, recipe.mixture.tokens)
        print("\n".join(lines(plan)), flush=True)
        if why := refusal(plan, recipe.mixture.tolerance):
            raise DataError(why)
    manifest.save(whole, workdir / "manifest.json")
    _remove_others(workdir, whole.tokenizer)
    return plan


def _source_weights(recipe: Recipe) -> dict[str, float]:
    """Source of the corpus -> its weight within its type."""
    found: dict[str, float] = {}
    for source in recipe.sources:
        buckets = recipe.pack.buckets_of(source.type)
        if buckets is None:
            found[source.name] = source.weight
        else:
            for i, weight in enumerate(buckets.weights):
                found[bucket_source(source.name, i)] = source.weight * weight
    return found


def _write_tokenizer(workdir: Path, model: Commit) -> str:
    """Copies the tokenizer's files; returns the name that the manifest has for them."""
    if MODEL in model.outputs:
        _copy(model.directory / MODEL, workdir / MODEL)
        return MODEL
    directory = workdir / DIRECTORY
    directory.mkdir(exist_ok=True)
    for name in model.outputs:
        _copy(model.directory / name, directory / name)
    return DIRECTORY


def _remove_others(workdir: Path, tokenizer: str) -> None:
    """The tokenizer of an earlier recipe, of the other kind of file."""
    if tokenizer == MODEL:
        shutil.rmtree(workdir / DIRECTORY, ignore_errors=True)
    else:
        (workdir / MODEL).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.tmp")
    temporary.write_bytes(source.read_bytes())
    temporary.replace(target)


def write_clusters(workdir: Path, near: StageResult) -> None:
    """Writes clusters.parquet (`dedup.clusters.CLUSTERS`): which documents say nearly the same."""
    temporary = workdir / "clusters.parquet.tmp"
    with pq.ParquetWriter(temporary, CLUSTERS, compression="zstd") as table:
        for commit in near.commits:
            for piece in commit.input("clusters.parquet"):
                table.write_table(pq.read_table(piece.path))
    temporary.replace(workdir / "clusters.parquet")


def _shard(commit: Commit) -> manifest.Shard:
    report, records, table = commit.report, commit.outputs[CHUNKS], commit.outputs[TABLE]
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
        documents=report["documents"],
        table_bytes=table.bytes,
        table_sha256=table.sha256,
    )
