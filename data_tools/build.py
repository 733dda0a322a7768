"""The build: stages in order, from raw files to a manifest and a report.

<workdir>/stages/<stage>/      intermediate tables, see stage.py
<workdir>/shards/<shard>/      records and document table
<workdir>/tokenizer.model, manifest.json, report.json, report.html
"""

import fcntl
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from data_tools.clean.partition import CLEAN
from data_tools.dedup.exact import (
    DUPLICATES_STAGE,
    KEYS_STAGE,
    bucket_name,
    duplicates_name,
)
from data_tools.document import DataError
from data_tools.engines import Engine
from data_tools.pack import CHUNKS, PACK, ShardConfig
from data_tools.read.partition import READ, plan
from data_tools.recipe import Recipe
from data_tools.report import summarize, write_report
from data_tools.shuffle import SHUFFLE, SPLITS, ShuffleConfig
from data_tools.shuffle import bucket_name as shard_bucket_name
from data_tools.source import SourceConfig
from data_tools.stage import Commit, Input, Partition, Stage, StageResult, pending, run_stage
from data_tools.tokenize import TOKENIZE, id_dtype
from data_tools.tokenizer.sample import SAMPLE, SampleConfig, quotas
from data_tools.tokenizer.train import MODEL, TRAIN, TrainConfig
from jaxlm.data import manifest
from jaxlm.schema import to_dict


class Build:
    """One recipe in one work directory; each method runs what its step needs and no more."""

    def __init__(self, recipe: Recipe, workdir: Path, engine: Engine):
        self.recipe, self.missing = available(recipe, workdir)
        self._workdir, self._engine = workdir, engine
        self.results: dict[str, StageResult] = {}
        """Stage -> its partitions, with those that ran this time."""

    def read(self) -> None:
        """Raw files to documents; a source without any is an error."""
        sources = self.recipe.sources
        size = self.recipe.partition_bytes
        partitions = [p for s in sources for p in plan(s, self._workdir, size)]
        result = self._run(READ, partitions)
        for source in sources:
            _check_source(source, [c for c in result.commits if c.report["source"] == source.name])

    def clean(self) -> None:
        """Documents through the rules of their type."""
        rules = {s.name: self.recipe.rules_for(s.type) for s in self.recipe.sources}
        self._run(
            CLEAN,
            [
                Partition(
                    commit.partition,
                    rules[commit.report["source"]],
                    {"documents": commit.input("documents.parquet")},
                )
                for commit in self.results["read"].commits
            ],
        )

    def dedup(self) -> None:
        """Finds exact duplicates among the clean documents."""
        cleaned, buckets = self.results["clean"].commits, self.recipe.dedup.buckets
        documents = [(c.partition, {"documents": c.input("documents.parquet")}) for c in cleaned]
        keys = self._run(KEYS_STAGE, [Partition(n, buckets, inputs) for n, inputs in documents])
        partitions = []
        for bucket in range(buckets):
            name = bucket_name(bucket)
            inputs = {"keys": tuple(i for c in keys.commits for i in c.input(name))}
            if inputs["keys"]:
                partitions.append(Partition(f"bucket-{bucket:05d}", None, inputs))
        self._run(DUPLICATES_STAGE, partitions)

    def tokenizer(self) -> None:
        """Samples the surviving text and trains the tokenizer on it."""
        sizes: Counter[str] = Counter()
        types = {s.name: s.type for s in self.recipe.sources}
        for read, clean in zip(
            self.results["read"].commits, self.results["clean"].commits, strict=True
        ):
            sizes[types[read.report["source"]]] += clean.report["text_bytes"]
        quota = quotas(sizes, self.recipe.tokenizer.sample_bytes)
        shares = {kind: quota[kind] / max(size, 1) for kind, size in sizes.items()}
        config = SampleConfig(shares, self.recipe.heldout)
        sample = self._run(SAMPLE, [Partition(n, config, i) for n, i in self._surviving()])
        inputs = tuple(i for c in sample.commits for i in c.input("sample.parquet"))
        train = TrainConfig(self.recipe.tokenizer, quota)
        self._run(TRAIN, [Partition("model", train, {"sample": inputs})])

    def tokenize(self) -> None:
        """Surviving documents to token ids."""
        commit = self._model()
        # By what it does, not by its file: the same pieces are the same tokenizer.
        model = Input(commit.directory / MODEL, "tokenizer", commit.report["hash"])
        partitions = [
            Partition(name, None, {**inputs, "tokenizer": (model,)})
            for name, inputs in self._surviving()
        ]
        self._run(TOKENIZE, partitions)

    def pack(self) -> None:
        """Tokenized documents to shards, in hash order, and the manifest over them."""
        shards = {s.name: self._shard_counts(s) for s in self.recipe.sources}
        salt, held = self.recipe.pack.salt, self.recipe.heldout
        tokenized = self.results["tokenize"].commits
        shuffled = self._run(
            SHUFFLE,
            [
                Partition(
                    c.partition,
                    ShuffleConfig(salt, held, shards[self._source_of(c)]),
                    {"tokens": c.input("tokens.parquet")},
                )
                for c in tokenized
            ],
        )
        partitions = [
            self._shard(source, split, k, count, shuffled)
            for source in self.recipe.sources
            for split, count in zip(SPLITS, shards[source.name], strict=True)
            for k in range(count)
        ]
        root = self._workdir / "shards"
        # A manifest must not outlive its shards: it goes first and comes back last.
        if pending(PACK, partitions, root):
            (self._workdir / "manifest.json").unlink(missing_ok=True)
        result = self._run(PACK, partitions, root)
        self._write_manifest(partitions, result)

    def report(self) -> None:
        """report.json and report.html from what the stages said."""
        write_report(self._workdir, self.recipe, self.missing, self.results)

    # ---- pieces ----------------------------------------------------------------------------------

    def _run(
        self, stage: Stage, partitions: list[Partition], root: Path | None = None
    ) -> StageResult:
        root = root or self._workdir / "stages" / stage.name
        self.results[stage.name] = run_stage(stage, partitions, root, self._engine)
        return self.results[stage.name]

    def _surviving(self) -> Iterator[tuple[str, dict[str, tuple[Input, ...]]]]:
        """(Partition, inputs of `dedup.exact.survivors`) for each clean partition."""
        duplicates = self.results["duplicates"].commits
        for clean in self.results["clean"].commits:
            name = duplicates_name(clean.partition)
            inputs = {
                "documents": clean.input("documents.parquet"),
                "duplicates": tuple(i for c in duplicates for i in c.input(name)),
            }
            yield clean.partition, inputs

    def _model(self) -> Commit:
        (commit,) = self.results["tokenizer"].commits
        return commit

    def _source_of(self, commit: Commit) -> str:
        return commit.partition.rpartition("-")[0]

    def _shard_counts(self, source: SourceConfig) -> tuple[int, int]:
        """Shards of (train, heldout), from the source's tokens: at most `shard_chunks`, about."""
        reports = [
            c.report for c in self.results["tokenize"].commits if self._source_of(c) == source.name
        ]
        stream = sum(r["tokens"] + r["documents"] for r in reports)
        size = self.recipe.pack.shard_chunks * self.recipe.pack.chunk_tokens
        fraction = self.recipe.heldout.fraction
        return (
            max(1, round(stream * (1 - fraction) / size)),
            max(1, round(stream * fraction / size)) if fraction else 0,
        )

    def _shard(
        self, source: SourceConfig, split: manifest.Split, k: int, count: int, shuffled: StageResult
    ) -> Partition[ShardConfig]:
        tokenizer, pack = self._model().report, self.recipe.pack
        config = ShardConfig(
            source=source.name,
            type=source.type,
            split=split,
            salt=pack.salt,
            chunk_tokens=pack.chunk_tokens,
            vocab_size=tokenizer["vocab_size"],
            bos_id=tokenizer["bos_id"],
            pad_id=tokenizer["pad_id"],
        )
        name = shard_bucket_name(split, k)
        mine = [c for c in shuffled.commits if self._source_of(c) == source.name]
        inputs = {"documents": tuple(i for c in mine for i in c.input(name))}
        return Partition(f"{source.name}.{split}-{k:05d}-of-{count:05d}", config, inputs)

    def _write_manifest(
        self, partitions: list[Partition[ShardConfig]], result: StageResult
    ) -> None:
        model = self._model()
        temporary = self._workdir / f"{MODEL}.tmp"
        temporary.write_bytes((model.directory / MODEL).read_bytes())
        temporary.replace(self._workdir / MODEL)
        shards = [
            _manifest_shard(partition.config, commit)
            for partition, commit in zip(partitions, result.commits, strict=True)
            if commit.report["documents"]
        ]
        if not any(s.split == "train" for s in shards):
            raise DataError("no document is left to train on; see report.html for what was dropped")
        vocab_size = model.report["vocab_size"]
        dtype = "uint16" if id_dtype(vocab_size).itemsize == 2 else "uint32"
        whole = manifest.Manifest(
            version=manifest.VERSION,
            tokenizer=MODEL,
            tokenizer_hash=model.report["hash"],
            vocab_size=vocab_size,
            bos_id=model.report["bos_id"],
            pad_id=model.report["pad_id"],
            dtype=dtype,
            chunk_tokens=self.recipe.pack.chunk_tokens,
            shards=tuple(shards),
            recipe=to_dict(self.recipe),
            counts=summarize(self.recipe, self.results),
        )
        manifest.save(whole, self._workdir / "manifest.json")


STEPS: dict[str, Callable[[Build], None]] = {
    "read": Build.read,
    "clean": Build.clean,
    "dedup": Build.dedup,
    "tokenizer": Build.tokenizer,
    "tokenize": Build.tokenize,
    "pack": Build.pack,
    "report": Build.report,
}
"""In order; each needs those before it."""


def build(recipe: Recipe, workdir: Path, engine: Engine, last: str = "report") -> Build:
    """Runs the steps up to and including `last`, reusing what is committed."""
    with _alone(workdir):
        work = Build(recipe, workdir, engine)
        for name, step in STEPS.items():
            step(work)
            if name == last:
                break
    return work


def available(recipe: Recipe, workdir: Path) -> tuple[Recipe, dict[str, str]]:
    """The recipe without the sources that its inventory declares missing; source -> why."""
    if not recipe.inventory:
        return recipe, {}
    path = workdir / recipe.inventory
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; gather the sample first: "
            f"python -m data_tools sample --workdir={workdir}"
        )
    missing = json.loads(path.read_text(encoding="utf-8"))["missing"]
    for name in missing:
        print(f"source {name} is left out: {missing[name]}", flush=True)
    present = tuple(s for s in recipe.sources if s.name not in missing)
    kinds = {s.type for s in present}
    rules = tuple(r for r in recipe.rules if not r.types or kinds.intersection(r.types))
    rules = tuple(replace(r, types=tuple(t for t in r.types if t in kinds)) for r in rules)
    return replace(recipe, sources=present, rules=rules), missing


def _manifest_shard(config: ShardConfig, commit: Commit) -> manifest.Shard:
    records = commit.outputs[CHUNKS]
    return manifest.Shard(
        path=f"shards/{commit.partition}/{CHUNKS}",
        source=config.source,
        type=config.type,
        split=config.split,
        chunks=commit.report["chunks"],
        tokens=commit.report["tokens"],
        text_bytes=commit.report["text_bytes"],
        file_bytes=records.bytes,
        sha256=records.sha256,
    )


def _check_source(source: SourceConfig, commits: list[Commit]) -> None:
    if sum(c.report["documents"] for c in commits):
        return
    bad = sum((Counter(c.report["bad"]) for c in commits), Counter())
    reasons = ", ".join(f"{reason} ({n})" for reason, n in bad.most_common(5))
    sample = next(s for c in commits for s in c.report["bad_samples"])
    raise DataError(
        f"source {source.name}: no document in the files of {', '.join(source.paths)} below "
        f"{source.root}: {reasons}; for example {sample['path']} line {sample['line']}: "
        f"{sample['reason']} {sample['detail']}".rstrip()
    )


@contextmanager
def _alone(workdir: Path) -> Iterator[None]:
    """Two builds in one directory would take each other's files."""
    with (workdir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{workdir}: another build is running here; wait for it") from None
        yield
