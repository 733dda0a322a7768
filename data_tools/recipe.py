"""A data recipe: sources, ordered rules with their thresholds, tokenizer, packing.

A file in `configs/data/` starts from `schema(Recipe)` and edits it; `load(Recipe, path, overrides)`
gives the frozen, validated recipe.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_tools import heldout, mixture, thresholds
from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.clean import EDITORS, RULES, Rule
from data_tools.clean.partition import NamedRule
from data_tools.decontaminate.config import DecontaminateConfig
from data_tools.dedup.config import NearConfig
from data_tools.dedup.exact import ExactConfig
from data_tools.heldout import HeldoutConfig
from data_tools.mixture import MixtureConfig
from data_tools.pack.config import BucketConfig, ExcludeConfig, PackConfig
from data_tools.privacy.config import PrivacyConfig
from data_tools.read import READERS
from data_tools.source import SourceConfig
from data_tools.tokenizer.config import TokenizerConfig
from jaxlm.schema import ConfigError, parse, section


@dataclass(frozen=True)
class RuleConfig:
    """One cleaning rule: its name in `RULES` and the thresholds that differ from its defaults."""

    name: str = ""
    """A key of `data_tools.clean.RULES`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Field of the rule -> value; checked against the rule's own class."""
    types: tuple[str, ...] = ()
    """Source types that it applies to; empty: all."""
    weight: float = 0.0
    """0: the rule drops documents. Above: it drops none, and lowers the quality of those that break
    it, which is the share of the weights of its type that a document has earned."""

    def __post_init__(self) -> None:
        thresholds.weight("weight", self.weight)

    def build(self, path: str) -> Rule:
        """The rule with its thresholds. `ConfigError` names `path` and what is allowed."""
        if self.name not in RULES:
            raise ConfigError(f"{path}.name={self.name!r}: must be one of {', '.join(RULES)}")
        if self.weight and self.name in EDITORS:
            raise ConfigError(
                f"{path}.weight={self.weight}: {self.name} changes the text, and only a rule that "
                "judges can be scored; set 0"
            )
        return parse(RULES[self.name], self.params, f"{path}.params")


LEAST_WORKER_BYTES = 512 << 20
"""Of a limit for workers: a row group of text, and what a stage makes of it, must fit."""


@dataclass(frozen=True)
class Recipe:
    """All that decides which token ids lie where, and how the work is split."""

    sources: tuple[SourceConfig, ...] = ()
    """Where raw text lies; their order is the order of reports."""
    exact: ExactConfig = section(ExactConfig)
    """Removal of copies, before all else."""
    decontaminate: DecontaminateConfig = section(DecontaminateConfig)
    """Removal of documents that hold evaluation data."""
    boilerplate: BoilerplateConfig = section(BoilerplateConfig)
    """Removal of lines that recur over a site or the corpus."""
    rules: tuple[RuleConfig, ...] = ()
    """Applied in this order; the first that drops a document is named in the report."""
    privacy: PrivacyConfig = section(PrivacyConfig)
    """What happens to private data."""
    near: NearConfig = section(NearConfig)
    """Removal of near duplicates."""
    restored: tuple[str, ...] = ()
    """Ids (32 hex digits, as in the report and by `explain`) of documents to keep against every
    rule and verdict; not against a privacy policy: change that instead; and not what says the same
    as a held-out document."""
    heldout: HeldoutConfig = section(HeldoutConfig)
    """Documents kept for evaluation."""
    mixture: MixtureConfig = section(MixtureConfig)
    """Proportions of the types of text, in tokens."""
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    """Its training, or an existing one."""
    pack: PackConfig = section(PackConfig)
    """The shards."""
    inventory: str = ""
    """What `data_tools sample` could gather (a JSON file, relative to the work directory): a source
    that it declares missing is left out, and the report says so. Empty: no source may be missing.
    """
    partition_bytes: int = 256 << 20
    """Raw bytes that one task reads, about: small files together, a big one cut between records."""
    workers: int = 0
    """Worker processes on this machine; 0: one for each core. Changes no byte of the result."""
    worker_memory_bytes: int = 0
    """What a worker may take for a partition, on Linux; 0: no limit. Changes no byte either."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError("config.sources=(): a recipe needs at least one source")
        names = [s.name for s in self.sources]
        for i, source in enumerate(self.sources):
            _check_source(source, names, f"config.sources[{i}]")
        types = sorted({s.type for s in self.sources})
        for i in range(len(self.rules)):
            _check_rule(self.rules[: i + 1], types, f"config.rules[{i}]")
        mixture.check(self.mixture, types)
        heldout.check(self.heldout, types)
        self._check_pack(types)
        for id in self.restored:
            if not re.fullmatch("[0-9a-f]{32}", id):
                raise ConfigError(f"config.restored: {id!r} is no id; write its 32 hex digits")
        for name, least in (("partition_bytes", 1), ("workers", 0), ("worker_memory_bytes", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"config.{name}={getattr(self, name)}: must be at least {least}")
        if 0 < self.worker_memory_bytes < LEAST_WORKER_BYTES:
            raise ConfigError(
                f"config.worker_memory_bytes={self.worker_memory_bytes}: must be at least "
                f"{LEAST_WORKER_BYTES}, or 0 for no limit: with less no stage can work"
            )

    def _check_pack(self, types: Sequence[str]) -> None:
        """Buckets and exclusions are of types that there are, and of what is scored for them."""
        for name, entries in (("buckets", self.pack.buckets), ("exclude", self.pack.exclude)):
            for i, entry in enumerate(entries):
                path = f"config.pack.{name}[{i}]"
                for kind in entry.types or types:
                    _check_type(kind, types, path)
                    _check_scored(self, kind, entry, path)

    def rules_for(self, type: str) -> tuple[NamedRule, ...]:
        """The rules that apply to a source type, in order."""
        return tuple(
            NamedRule(rule.name, rule.build(f"config.rules[{i}]"), rule.weight)
            for i, rule in enumerate(self.rules)
            if not rule.types or type in rule.types
        )

    def worker_count(self) -> int:
        """`workers`, or the number of cores that this process may use."""
        return self.workers or len(os.sched_getaffinity(0))


def _check_rule(rules: Sequence[RuleConfig], types: Sequence[str], path: str) -> None:
    """The last of these rules, as those before it and the types of the sources allow it."""
    *before, rule = rules
    rule.build(path)
    for kind in rule.types or types:
        _check_type(kind, types, path)
        scored = any(r.weight and (not r.types or kind in r.types) for r in before)
        if rule.name == "quality" and not scored:
            raise ConfigError(
                f"{path}.name='quality': no rule before it is scored for the type {kind!r}, and "
                "nothing would ever be dropped; give such a rule a weight, or name in types those "
                "that have one"
            )


def _check_type(type: str, types: Sequence[str], path: str) -> None:
    if type not in types:
        raise ConfigError(
            f"{path}.types: no source has the type {type!r}; types here: {', '.join(types)}"
        )


def _check_scored(
    recipe: Recipe, type: str, entry: BucketConfig | ExcludeConfig, path: str
) -> None:
    """A bucket or exclusion of a type without scored rules would find nothing."""
    scored = [rule.name for rule in recipe.rules_for(type) if rule.weight]
    asked = entry.rules if isinstance(entry, ExcludeConfig) else ()
    for name in asked:
        if name not in scored:
            raise ConfigError(
                f"{path}.rules: {name!r} is no scored rule of the type {type!r} (scored: "
                f"{', '.join(scored) or 'none'}); give the rule a weight, or name in types those "
                "that have it"
            )
    if not scored:
        raise ConfigError(
            f"{path}: no rule is scored for the type {type!r}, whose documents are all of quality "
            "1; give a rule a weight, or name in types those that have one"
        )


def _check_source(source: SourceConfig, names: list[str], path: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_]+", source.name):
        raise ConfigError(f"{path}.name={source.name!r}: use letters, digits and underscores")
    if names.count(source.name) > 1:
        raise ConfigError(f"{path}.name={source.name!r}: another source has this name")
    if not source.type:
        raise ConfigError(f"{path}.type='': name the kind of text, for example web, book or code")
    if source.format not in READERS:
        raise ConfigError(f"{path}.format={source.format!r}: must be one of {', '.join(READERS)}")
    if not source.paths:
        raise ConfigError(f"{path}.paths=(): give at least one pattern, for example '*.jsonl'")
    for pattern in source.paths:
        if pattern.startswith("/"):
            raise ConfigError(
                f"{path}.paths: {pattern!r} is absolute; put the directory in root, and the "
                "pattern below it: documents are named by their path below root"
            )
