"""The tokenizer of a build: trained on the text that will be trained on, or one that exists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_tools.heldout import HeldoutConfig
from data_tools.mixture import MixtureStageConfig
from data_tools.restored import Restored
from data_tools.source import source_of
from data_tools.stage import Commit, Input, Partition, Run
from data_tools.tokenizer import existing
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.sample import (
    SAMPLE,
    SURVEY,
    SampleConfig,
    SurveyConfig,
    proportions,
    quotas,
)
from data_tools.tokenizer.train import TRAIN, TrainConfig

type Surviving = Sequence[tuple[str, Mapping[str, tuple[Input, ...]]]]
"""(Name of a partition, its documents, the verdicts about them and their relatives)."""


def take(run: Run, config: TokenizerConfig, workdir: Path) -> Commit:
    """The commit of the tokenizer that `config.path` names."""
    (commit,) = run(existing.EXISTING, [existing.partition(config, workdir)]).commits
    return commit


def train(
    run: Run,
    surviving: Surviving,
    types: Mapping[str, str],
    restored: Mapping[str, Restored],
    heldout: HeldoutConfig,
    mixture: Sequence[MixtureStageConfig],
    config: TokenizerConfig,
) -> Commit:
    """The commit of a tokenizer trained on a sample of the text; `types` are by source.

    A sample is a share of the pieces of each type, so what survives is counted first.
    """
    survey = run(
        SURVEY, [Partition(n, SurveyConfig(heldout, restored[n]), i) for n, i in surviving]
    )
    sizes: Counter[str] = Counter()
    for commit in survey.commits:
        sizes[types[source_of(commit.partition)]] += commit.report["text_bytes"]
    quota = quotas(sizes, config.sample_bytes, proportions(mixture))
    partitions = []
    for name, inputs in surviving:
        kind = types[source_of(name)]
        share = quota[kind] / max(sizes[kind], 1)
        partitions.append(Partition(name, SampleConfig(share, heldout, restored[name]), inputs))
    sample = run(SAMPLE, partitions)
    pieces = tuple(i for c in sample.commits for i in c.input("sample.parquet"))
    training = Partition("model", TrainConfig(config, quota), {"sample": pieces})
    (commit,) = run(TRAIN, [training]).commits
    return commit
