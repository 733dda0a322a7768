"""What a run reads: training rows, held-out rows by type, and the tokenizer they were made with."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jaxlm.config import Config
from jaxlm.data import mixture, source
from jaxlm.data.files import open_files
from jaxlm.data.manifest import Manifest, ManifestError
from jaxlm.data.mixture_plan import Plan, Stage
from jaxlm.data.source import HeldOutRows, TrainRows
from jaxlm.data.synthetic import SyntheticHeldOut, SyntheticRows
from jaxlm.data.tokenizer import Tokenizer, open_tokenizer
from jaxlm.schema import ConfigError

SYNTHETIC_HELD_OUT = 256
"""Held-out rows of synthetic data."""


@dataclass(frozen=True)
class Corpus:
    """Opened and checked; nothing but manifest, sizes and tokenizer has been read."""

    train: TrainRows | SyntheticRows
    heldout: Mapping[str, HeldOutRows | SyntheticHeldOut]
    """By type."""
    tokenizer: Tokenizer | None
    """None for synthetic rows."""
    plan: Plan | None
    """What the run draws; None for synthetic rows."""

    @property
    def bos_id(self) -> int:
        """The token that starts a document."""
        return self.train.bos_id

    @property
    def pad_id(self) -> int:
        """The token that fills a row."""
        return self.train.pad_id

    @property
    def tokenizer_hash(self) -> str | None:
        """Identity of the tokenizer, None for synthetic rows."""
        rows = self.train
        return rows.shards.manifest.tokenizer_hash if isinstance(rows, TrainRows) else None

    def piece_bytes_V(self, padded_vocab: int) -> np.ndarray:
        """int32[V]: UTF-8 bytes that each token stands for, 0 for padding of the vocabulary."""
        sizes_V = np.zeros(padded_vocab, np.int32)
        if self.tokenizer is not None:
            sizes_V[: self.tokenizer.vocab_size] = self.tokenizer.piece_bytes_V()
        return sizes_V


def open_corpus(cfg: Config) -> Corpus:
    """Opens what `cfg.data` names and refuses what does not fit the run.

    Raises `ConfigError`, `ManifestError`, `TokenizerError` or `OrderError`.
    """
    if cfg.data.source == "synthetic":
        made_by = (cfg.data.seed, cfg.data.seq_len, cfg.model.vocab_size)
        heldout = {"synthetic": SyntheticHeldOut(*made_by, SYNTHETIC_HELD_OUT)}
        return Corpus(SyntheticRows(*made_by), heldout, None, None)
    path = cfg.data.manifest
    files = open_files(path, cfg.cache)
    manifest = files.manifest
    if cfg.model.vocab_size != manifest.vocab_size:
        raise ConfigError(
            f"config.model.vocab_size={cfg.model.vocab_size}: the corpus {path} has a vocabulary "
            f"of {manifest.vocab_size}; set config.model.vocab_size={manifest.vocab_size}"
        )
    plan = _plan(cfg, manifest)
    train = source.open_train(files, cfg.data, plan.order_stages)
    tokenizer = open_tokenizer(files.tokenizer())
    if tokenizer.hash() != manifest.tokenizer_hash:
        raise ManifestError(
            f"{tokenizer.path}: tokenizer hash {tokenizer.hash()}, but the shards were made with "
            f"{manifest.tokenizer_hash}; restore that tokenizer or build the corpus again"
        )
    found = (tokenizer.bos_id, tokenizer.pad_id)
    if found != (manifest.bos_id, manifest.pad_id):
        raise ManifestError(
            f"{path}: bos_id={manifest.bos_id} and pad_id={manifest.pad_id}, but the tokenizer has "
            f"{found[0]} and {found[1]}; build the corpus again"
        )
    return Corpus(train, source.open_heldout(files, cfg.data.seq_len), tokenizer, plan)


def _plan(cfg: Config, manifest: Manifest) -> Plan:
    stages = []
    for i, stage in enumerate(cfg.data.mixture):
        until = None
        if stage.until is not None:
            until = cfg.to_rows(stage.until, f"config.data.mixture[{i}].until")
            if stage.until.endswith("%"):  # so that it moves with the end of the run
                until = Fraction(stage.until.removesuffix("%").strip()) / 100
        stages.append(Stage(until, dict(stage.weights)))
    plan = mixture.of_run(manifest, cfg.data, stages).plan(cfg.end)
    if refusal := mixture.refusal(plan):
        raise ConfigError(refusal)
    return plan
