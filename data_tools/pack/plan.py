"""From tokenized documents to the shards that are to be packed.

Three stages; the last is the caller's to run:

    survey    a partition   documents and tokens for each pile (`pile.py`): decides how many shards
    shuffle   a partition   its documents sorted by shard; those that are excluded
    pack      a shard       records and document table

Another exclusion or other buckets run these again, and no stage before them; pack only for the
shards whose documents changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_tools.heldout import HeldoutConfig
from data_tools.pack.config import PackConfig
from data_tools.pack.partition import ShardConfig
from data_tools.pack.pile import Pile, PileConfig, pile_config
from data_tools.pack.shuffle import SHUFFLE, SHUFFLED, ShuffleConfig, shard_names
from data_tools.pack.survey import SURVEY
from data_tools.source import source_of
from data_tools.stage import Commit, Input, Partition, Run
from data_tools.tokenize import TOKENS, id_dtype


def plan_shards(
    run: Run,
    tokenized: Sequence[Commit],
    types: Mapping[str, str],
    pack: PackConfig,
    heldout: HeldoutConfig,
    tokenizer: Mapping[str, Any],
) -> list[Partition[ShardConfig]]:
    """Runs survey and shuffle over the commits of `tokenize`; the partitions of pack, each with
    documents.

    `types`: source -> its type, in the order of the shards. `tokenizer`: the report on it, with
    vocab_size, bos_id and pad_id.
    """
    configs = {s: pile_config(s, type, pack, heldout) for s, type in types.items()}
    tokens = {c.partition: {"tokens": c.input(TOKENS)} for c in tokenized}
    surveyed = run(
        SURVEY, [Partition(n, configs[source_of(n)], inputs) for n, inputs in tokens.items()]
    )
    counts: dict[str, tuple[int, ...]] = {}
    for source, config in configs.items():
        reports = [c.report for c in surveyed.commits if source_of(c.partition) == source]
        counts[source] = _shard_counts(config, reports, pack, tokenizer["vocab_size"])
    shuffled = run(
        SHUFFLE,
        [
            Partition(n, ShuffleConfig(configs[s], pack.salt, counts[s]), inputs)
            for n, inputs in tokens.items()
            for s in [source_of(n)]
        ],
    )
    inputs: dict[str, list[Input]] = {}
    for commit in shuffled.commits:
        path = commit.directory / SHUFFLED
        for shard, identity in commit.report["shards"].items():
            inputs.setdefault(shard, []).append(Input(path, commit.partition, identity))
    return [
        Partition(
            shard,
            _shard_config(pile, config.source, types[source], pack, tokenizer),
            {"documents": tuple(inputs[shard])},
        )
        for source, config in configs.items()
        for pile, count in zip(config.piles, counts[source], strict=True)
        for shard in shard_names(pile, count)
        if shard in inputs
    ]


def _shard_counts(
    config: PileConfig, reports: Sequence[Mapping[str, Any]], pack: PackConfig, vocab_size: int
) -> tuple[int, ...]:
    """Shards of each pile, of `shard_bytes` each, about, before padding; none for none."""
    nothing = [0] * len(config.piles)
    documents, tokens = (
        np.sum([nothing, *(r[what] for r in reports)], axis=0) for what in ("documents", "tokens")
    )
    sizes = (documents + tokens) * id_dtype(vocab_size).itemsize
    return tuple(
        max(1, round(size / pack.shard_bytes)) if count else 0
        for count, size in zip(documents.tolist(), sizes.tolist(), strict=True)
    )


def _shard_config(
    pile: Pile, origin: str, type: str, pack: PackConfig, tokenizer: Mapping[str, Any]
) -> ShardConfig:
    return ShardConfig(
        source=pile.source,
        origin=origin,
        type=type,
        split=pile.split,
        method=pack.method,
        salt=pack.salt,
        chunk_tokens=pack.chunk_tokens,
        vocab_size=tokenizer["vocab_size"],
        bos_id=tokenizer["bos_id"],
        pad_id=tokenizer["pad_id"],
    )
