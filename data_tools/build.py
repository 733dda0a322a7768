"""The build: stages in order, from raw files to a manifest and a report.

<workdir>/stages/<stage>/        intermediate tables, see stage.py
<workdir>/shards/<shard>/        records and document table
<workdir>/dropped/<partition>/   every document that did not stay, and why
<workdir>/clusters.parquet       near duplicates
<workdir>/tokenizer.model (or tokenizer/), manifest.json, report.json, report.html
"""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from data_tools.boilerplate.find import find as find_boilerplate
from data_tools.clean.partition import CLEAN, CleanConfig
from data_tools.corpus import (
    make_room,
    remove_corpus,
    tokenizer_path,
    write_clusters,
    write_corpus,
)
from data_tools.decontaminate.contaminated import find as find_contaminated
from data_tools.decontaminate.evaluation import set_inputs
from data_tools.dedup import exact, near
from data_tools.document import DOCUMENTS, DataError
from data_tools.dropped import DROPPED
from data_tools.drops import TABLE as DROPPED_TABLE
from data_tools.engines import Engine
from data_tools.inventory import available, check_kept, check_names, check_read, check_trained
from data_tools.pack.partition import PACK
from data_tools.pack.plan import plan_shards
from data_tools.privacy.partition import PRIVACY
from data_tools.privacy.partition import inputs as secrets
from data_tools.read.partition import READ, plan
from data_tools.recipe import Recipe
from data_tools.report import summarize, write_report
from data_tools.report.summary import DROPPING
from data_tools.restored import places
from data_tools.source import SourceConfig, source_of
from data_tools.stage import Commit, Input, Partition, Stage, StageResult, is_done, run_stage
from data_tools.tokenize import TOKENIZE
from data_tools.tokenizer import make
from data_tools.tokenizer.sample import TextConfig

type Inputs = dict[str, tuple[Input, ...]]
"""What a partition reads, by role."""


class Build:
    """One recipe in one work directory; each method runs what its step needs and no more."""

    def __init__(self, recipe: Recipe, workdir: Path, engine: Engine):
        check_names(recipe)
        make_room(workdir, recipe.tokenizer)
        self.recipe, self.missing = available(recipe, workdir)
        self._workdir, self._engine = workdir, engine
        self._types = {s.name: s.type for s in self.recipe.sources}
        policies = {kind: self.recipe.privacy.of(kind) for kind in self._types.values()}
        self._policies = {kind: (policy, secrets(policy)) for kind, policy in policies.items()}
        self._evaluation = set_inputs(recipe.decontaminate, workdir)
        self.results: dict[str, StageResult] = {}
        """Stage -> its partitions, with those that ran this time."""

    def read(self) -> None:
        """Raw files to documents; a source without any is an error."""
        sources = self.recipe.sources
        size = self.recipe.partition_bytes
        partitions = [p for s in sources for p in plan(s, self._workdir, size)]
        result = self._run(READ, partitions)
        for source in sources:
            policy, _ = self._policies[source.type]
            check_read(source, [c.report for c in _of(source, result)], policy)

    def exact(self) -> None:
        """Finds the copies among the documents as they were read."""
        documents = [(c.partition, c.input(DOCUMENTS)) for c in self._commits("read")]
        self._restored = places(self.recipe.restored, dict(documents))
        self._exact = exact.find(self._run, documents, self.recipe.exact, self.recipe.heldout)

    def decontaminate(self) -> None:
        """Finds evaluation data in the documents as they were read, before an edit can hide it."""
        documents = [(c.partition, c.input(DOCUMENTS)) for c in self._commits("read")]
        config = self.recipe.decontaminate
        self._contaminated = find_contaminated(self._run, documents, config, self._evaluation)

    def boilerplate(self) -> None:
        """Finds the lines that recur in what is no copy."""
        config = self.recipe.boilerplate
        documents = [
            (c.partition, self._standing(c))
            for c in self._commits("read")
            if self._type(c) in config.types
        ]
        self._lines = find_boilerplate(self._run, documents, config)

    def clean(self) -> None:
        """Documents without copies, evaluation data and boilerplate, through their type's rules."""
        rules = {s.type: self.recipe.rules_for(s.type) for s in self.recipe.sources}
        boilerplate = self.recipe.boilerplate
        partitions = []
        for commit in self._commits("read"):
            name, kind = commit.partition, self._type(commit)
            lines = boilerplate.removal if kind in boilerplate.types else None
            config = CleanConfig(rules[kind], lines, self._restored[name])
            inputs = self._standing(commit) | {"boilerplate": self._lines.about(name)}
            partitions.append(Partition(name, config, inputs))
        self._run(CLEAN, partitions)

    def privacy(self) -> None:
        """Private data in clean documents, by policy."""
        partitions = []
        for commit in self._commits("clean"):
            policy, secret = self._policies[self._type(commit)]
            inputs = {"documents": commit.input(DOCUMENTS)} | secret
            partitions.append(Partition(commit.partition, policy, inputs))
        self._run(PRIVACY, partitions)

    def near(self) -> None:
        """Finds near duplicates among the clean documents."""
        documents = [(c.partition, c.input(DOCUMENTS)) for c in self._commits("privacy")]
        self._near = near.find(self._run, documents, self.recipe.near, self.recipe.heldout)
        write_clusters(self._workdir, self._near)

    def tokenizer(self) -> None:
        """Takes the tokenizer that the recipe names, or samples text and trains one on it."""
        recipe = self.recipe
        if recipe.tokenizer.path:
            make.take(self._run, recipe.tokenizer, self._workdir)
        else:
            partitions = []
            for commit in self._commits("privacy"):
                config = TextConfig(recipe.heldout, self._restored[commit.partition])
                partitions.append(Partition(commit.partition, config, self._surviving(commit)))
            mixture = recipe.mixture.stages
            make.train(self._run, partitions, self._types, mixture, recipe.tokenizer)

    def tokenize(self) -> None:
        """Surviving documents to token ids; the others to the table of what was dropped."""
        tokenizer = self._model()
        # By what it does, not by its file: the same pieces are the same tokenizer.
        model = Input(tokenizer_path(tokenizer), "tokenizer", tokenizer.report["hash"])
        partitions = []
        for commit in self._commits("privacy"):
            name = commit.partition
            inputs = self._surviving(commit) | {
                "representatives": self._near.about(name, ".representatives"),
                "tokenizer": (model,),
            }
            partitions.append(Partition(name, self._restored[name], inputs))
        self._run(TOKENIZE, partitions)
        self._show_dropped()
        for source, counts in summarize(self.recipe, self.results).items():
            check_kept(source, counts)

    def pack(self) -> None:
        """Tokenized documents to shards, in hash order, and the manifest over them.

        `DataError` when exclusions leave nothing of a source to train on, or when the corpus cannot
        give the mixture that the recipe asks for.
        """
        recipe, tokenized = self.recipe, self._commits("tokenize")
        tokenizer = self._model()
        partitions = plan_shards(
            self._run, tokenized, self._types, recipe.pack, recipe.heldout, tokenizer.report
        )
        root = self._workdir / "shards"
        # A manifest must not outlive its shards: it goes first and comes back last.
        if not is_done(PACK, partitions, root):
            remove_corpus(self._workdir)
        trained = {p.config.origin for p in partitions if p.config.split == "train"}
        for source, excluded in summarize(recipe, self.results).items():
            if source not in trained:
                check_trained(source, excluded)
        packed = self._run(PACK, partitions, root)
        counts = summarize(recipe, self.results)
        self._plan = write_corpus(self._workdir, recipe, tokenizer, packed, counts)

    def report(self) -> None:
        """report.json and report.html from what the stages said."""
        write_report(self._workdir, self.recipe, self.missing, self.results, self._plan)

    # ---- pieces ----------------------------------------------------------------------------------

    def _run(
        self, stage: Stage, partitions: Sequence[Partition], root: Path | None = None
    ) -> StageResult:
        root = root or self._workdir / "stages" / stage.name
        self.results[stage.name] = run_stage(stage, partitions, root, self._engine)
        return self.results[stage.name]

    def _commits(self, stage: str) -> tuple[Commit, ...]:
        return self.results[stage].commits

    def _type(self, commit: Commit) -> str:
        return self._types[source_of(commit.partition)]

    def _standing(self, commit: Commit) -> Inputs:
        """Documents as they were read, and the verdicts about them: a copy is called a copy."""
        name = commit.partition
        about = self._contaminated.about(name) + self._exact.about(name)
        return {"documents": commit.input(DOCUMENTS), "verdicts": about}

    def _surviving(self, commit: Commit) -> Inputs:
        """Clean documents, and the verdicts about them."""
        verdicts = self._near.about(commit.partition)
        return {"documents": commit.input(DOCUMENTS), "verdicts": verdicts}

    def _show_dropped(self) -> None:
        """What all stages dropped, masked for people."""
        stages = [self._commits(s) for s in DROPPING]
        partitions = []
        for commits in zip(*stages, strict=True):
            dropped = tuple(i for c in commits for i in c.input(DROPPED_TABLE))
            policy, secret = self._policies[self._type(commits[0])]
            inputs = {"dropped": dropped, "ner": secret["ner"]}
            partitions.append(Partition(commits[0].partition, policy, inputs))
        self._run(DROPPED, partitions, self._workdir / "dropped")

    def _model(self) -> Commit:
        (commit,) = self.results["tokenizer"].commits
        return commit


STEPS: dict[str, Callable[[Build], None]] = {
    "read": Build.read,
    "exact": Build.exact,
    "decontaminate": Build.decontaminate,
    "boilerplate": Build.boilerplate,
    "clean": Build.clean,
    "privacy": Build.privacy,
    "near": Build.near,
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


def _of(source: SourceConfig, result: StageResult) -> list[Commit]:
    return [c for c in result.commits if source_of(c.partition) == source.name]


@contextmanager
def _alone(workdir: Path) -> Iterator[None]:
    """Two builds in one directory would take each other's files."""
    with (workdir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{workdir}: another build is running here; wait for it") from None
        yield
