"""A data recipe: sources, ordered rules with their thresholds, tokenizer, packing.

A file in `configs/data/` starts from `schema(Recipe)` and edits it; `load(Recipe, path, overrides)`
gives the frozen, validated recipe.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data_tools.clean import RULES, Rule
from data_tools.heldout import HeldoutConfig
from data_tools.read import READERS
from data_tools.source import SourceConfig
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

    def build(self, path: str) -> Rule:
        """The rule with its thresholds; `ConfigError` names `path` and what is allowed."""
        if self.name not in RULES:
            raise ConfigError(f"{path}.name={self.name!r}: must be one of {', '.join(RULES)}")
        return parse(RULES[self.name], self.params, f"{path}.params")


@dataclass(frozen=True)
class DedupConfig:
    """Exact duplicates: one document of each content stays, the one with the smallest id."""

    buckets: int = 16
    """Hash ranges that are sorted apart; the hashes of one must fit in memory."""

    def __post_init__(self) -> None:
        if self.buckets < 1:
            raise ValueError(f"buckets={self.buckets} must be at least 1")


@dataclass(frozen=True)
class TokenizerConfig:
    """A SentencePiece BPE model that gives every text back exactly.

    BPE alone: its pieces do not depend on threads or on the order of the sample.
    """

    vocab_size: int = 64_000
    """Pieces, with the control symbols and the 256 bytes."""
    character_coverage: float = 0.9995
    """Share of the sample's characters that get pieces of their own; the rest are bytes."""
    sample_bytes: int = 1 << 30
    """UTF-8 bytes to train on, shared equally by the types; a short type leaves its rest."""
    control_symbols: tuple[str, ...] = (
        "<system>",
        "<user>",
        "<assistant>",
        "<end>",
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
    )
    """Pieces that no text produces, after <unk>, <bos>, <eos> and <pad>."""
    spares: int = 16
    """Numbered control symbols <spare_0>, ... for later use."""

    def __post_init__(self) -> None:
        if not 0 < self.character_coverage <= 1:
            raise ValueError(
                f"character_coverage={self.character_coverage} must be above 0 and at most 1"
            )
        if self.spares < 0:
            raise ValueError(f"spares={self.spares} must be at least 0")
        for name in ("vocab_size", "sample_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True)
class PackConfig:
    """How token streams become shards."""

    chunk_tokens: int = 2048
    """New tokens a record: the smallest sequence length that will be trained with."""
    shard_chunks: int = 65_536
    """Records a shard, about; one shard is packed in memory."""
    salt: str = "order"
    """Documents enter the shards in the order of hash(id, salt)."""

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "shard_chunks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True)
class Recipe:
    """All that decides which token ids lie where, and how the work is split."""

    sources: tuple[SourceConfig, ...] = ()
    """Where raw text lies; their order is the order of reports."""
    rules: tuple[RuleConfig, ...] = ()
    """Applied in this order; the first that drops a document is named in the report."""
    dedup: DedupConfig = section(DedupConfig)
    """Removal of copies."""
    heldout: HeldoutConfig = section(HeldoutConfig)
    """Documents kept for evaluation."""
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    """Its training."""
    pack: PackConfig = section(PackConfig)
    """The shards."""
    inventory: str = ""
    """What `data_tools sample` could gather (a JSON file, relative to the work directory): a source
    that it declares missing is left out, and the report says so. Empty: no source may be missing.
    """
    partition_bytes: int = 256 << 20
    """Raw bytes that one task reads, about; a file is never split."""
    workers: int = 0
    """Worker processes; 0: one for each core. Changes no byte of the result."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError("config.sources=(): a recipe needs at least one source")
        names = [s.name for s in self.sources]
        for i, source in enumerate(self.sources):
            _check_source(source, names, f"config.sources[{i}]")
        types = sorted({s.type for s in self.sources})
        for i, rule in enumerate(self.rules):
            rule.build(f"config.rules[{i}]")
            for kind in rule.types:
                if kind not in types:
                    raise ConfigError(
                        f"config.rules[{i}].types: no source has the type {kind!r}; "
                        f"types here: {', '.join(types)}"
                    )
        for name, least in (("partition_bytes", 1), ("workers", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"config.{name}={getattr(self, name)}: must be at least {least}")

    def rules_for(self, type: str) -> tuple[tuple[str, Rule], ...]:
        """(Name, rule) in order, of the rules that apply to a source type."""
        return tuple(
            (rule.name, rule.build(f"config.rules[{i}]"))
            for i, rule in enumerate(self.rules)
            if not rule.types or type in rule.types
        )

    def worker_count(self) -> int:
        """`workers`, or the number of cores that this process may use."""
        return self.workers or len(os.sched_getaffinity(0))


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
