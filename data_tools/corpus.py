"""What a build leaves beside its shards: tokenizer, manifest, clusters of near duplicates.

tokenizer.model and tokenizer/ are a build's own. What lies there and no build wrote is never
replaced: the build is refused.
"""

import filecmp
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data_tools.dedup.clusters import CLUSTERS
from data_tools.document import DataError
from data_tools.mixture import MixtureConfig, in_manifest
from data_tools.pack.partition import CHUNKS
from data_tools.pack.pile import bucket_source
from data_tools.recipe import Recipe
from data_tools.stage import Commit, StageResult
from data_tools.tokenize import id_dtype
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.train import MODEL
from jaxlm.data import manifest
from jaxlm.data.documents import TABLE
from jaxlm.data.mixture import lines, plan_manifest, refusal
from jaxlm.data.mixture_plan import Plan
from jaxlm.errors import UserError
from jaxlm.schema import ConfigError, to_dict

DIRECTORY = "tokenizer"
"""Where the files of a tokenizer of Hugging Face's lie."""
OWN = (MODEL, DIRECTORY)
MANIFEST = "manifest.json"


def make_room(workdir: Path, config: TokenizerConfig) -> None:
    """Removes the tokenizer that a killed build left without a manifest.

    `DataError` for one that no build wrote, which would be replaced; `ConfigError` where `config`
    names one in that place.
    """
    given = (workdir / config.path).resolve()
    for name in OWN:
        path = workdir / name
        if config.path and given.is_relative_to(path.resolve()):
            raise ConfigError(
                f"config.tokenizer.path={config.path!r}: {path} is where a build writes its "
                "tokenizer; move yours elsewhere, and name that"
            )
        if not path.exists(follow_symlinks=False) or _is_named(path):
            continue
        if not _is_copy(path, workdir / "stages/tokenizer/model"):
            raise DataError(
                f"{path}: a build writes its tokenizer there, and no build that the work directory "
                "knows of wrote this one; move it elsewhere"
            )
        _remove(path)


def remove_corpus(workdir: Path) -> None:
    """Removes the manifest, and the tokenizer that it names: nothing trains on them any more."""
    for name in OWN:
        if _is_named(workdir / name):
            _remove(workdir / name)
    (workdir / MANIFEST).unlink(missing_ok=True)


def _is_named(path: Path) -> bool:
    """Whether a build wrote this tokenizer: the manifest beside it, of any version, names it."""
    try:
        made = json.loads((path.parent / MANIFEST).read_text(encoding="utf-8"))
        return made["tokenizer"] == path.name and not path.is_symlink()
    except (OSError, ValueError, TypeError, KeyError):  # none, or damaged
        return False


def _is_copy(path: Path, model: Path) -> bool:
    """Whether a tokenizer has nothing that the stage's output has not; a link is no copy."""
    files = [path] if path.is_file() else [f for f in path.rglob("*") if not f.is_dir()]
    return not path.is_symlink() and all(
        (model / f.name).is_file() and filecmp.cmp(f, model / f.name, shallow=False) for f in files
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    nothing is left to train on, when no plan can be made, or when the plan is further off than the
    recipe allows. Then no manifest is left either.
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
        tokenizer=MODEL if MODEL in model.outputs else DIRECTORY,
        tokenizer_hash=tokenizer["hash"],
        vocab_size=tokenizer["vocab_size"],
        bos_id=tokenizer["bos_id"],
        pad_id=tokenizer["pad_id"],
        dtype="uint16" if id_dtype(tokenizer["vocab_size"]).itemsize == 2 else "uint32",
        chunk_tokens=recipe.pack.chunk_tokens,
        packing=recipe.pack.method,
        mixture=in_manifest(recipe.mixture, source_weights(recipe)),
        shards=shards,
        recipe=to_dict(recipe),
        counts=counts,
    )
    try:
        plan = _plan(whole, recipe.mixture)
    except UserError as e:
        remove_corpus(workdir)  # or the mixture of an earlier recipe would be trained on
        raise DataError(
            f"{e}. No manifest is written, and one of an earlier build is removed; nothing else is "
            "lost: once the recipe is mended, the same build writes it in seconds"
        ) from None
    make_room(workdir, recipe.tokenizer)
    _write_tokenizer(workdir, model)
    manifest.save(whole, workdir / MANIFEST)
    return plan


def _plan(whole: manifest.Manifest, mixture: MixtureConfig) -> Plan | None:
    """Of the run that the recipe states."""
    if not mixture.tokens:
        return None
    plan = plan_manifest(whole, mixture.tokens)
    print("\n".join(lines(plan)), flush=True)
    if why := refusal(plan):
        raise DataError(why)
    return plan


def source_weights(recipe: Recipe) -> dict[str, float]:
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


def _write_tokenizer(workdir: Path, model: Commit) -> None:
    """Copies the tokenizer's files, each whole or not at all."""
    directory = workdir if MODEL in model.outputs else workdir / DIRECTORY
    directory.mkdir(exist_ok=True)
    for name in model.outputs:
        temporary = workdir / f"{name}.tmp"
        temporary.write_bytes((model.directory / name).read_bytes())
        temporary.replace(directory / name)


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
