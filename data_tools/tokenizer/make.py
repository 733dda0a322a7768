"""The tokenizer of a build: trained on the text that will be trained on, or one that exists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from data_tools.document import DataError
from data_tools.mixture import MixtureStageConfig, proportions
from data_tools.source import source_of
from data_tools.stage import Commit, Partition, Run
from data_tools.tokenizer import existing
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.sample import SAMPLE, SURVEY, SampleConfig, TextConfig, quotas
from data_tools.tokenizer.train import TRAIN, TrainConfig


def take(run: Run, config: TokenizerConfig, workdir: Path) -> Commit:
    """The commit of the tokenizer that `config.path` names."""
    (commit,) = run(existing.EXISTING, [existing.partition(config, workdir)]).commits
    return commit


def train(
    run: Run,
    partitions: Sequence[Partition[TextConfig]],
    types: Mapping[str, str],
    mixture: Sequence[MixtureStageConfig],
    config: TokenizerConfig,
) -> Commit:
    """The commit of a tokenizer trained on a sample of the text; `types` are by source.

    `partitions` have documents and the verdicts about them. A sample is a share of the pieces of
    each type, so what there is of them is counted first. `DataError` when there is nothing.
    """
    sizes: Counter[str] = Counter()
    for commit in run(SURVEY, partitions).commits:
        sizes[types[source_of(commit.partition)]] += commit.report["text_bytes"]
    weights = proportions(mixture)
    if not any(size and weights.get(kind, 1) for kind, size in sizes.items()):
        heldout = partitions[0].config.heldout
        raise DataError(
            "no text is left to train the tokenizer on: each document was dropped (see "
            "stages/*/*/dropped.parquet), is held out (config.heldout.fraction="
            f"{heldout.fraction:.15g}, types={heldout.types}), or is of a type that the mixture "
            "leaves out; loosen the rules, or hold out less"
        )
    quota = quotas(sizes, config.sample_bytes, weights)
    shares = {kind: quota[kind] / max(size, 1) for kind, size in sizes.items()}
    sample = run(
        SAMPLE,
        [
            Partition(p.name, SampleConfig(shares[types[source_of(p.name)]], p.config), p.inputs)
            for p in partitions
        ],
    )
    pieces = tuple(i for c in sample.commits for i in c.input("sample.parquet"))
    training = Partition("model", TrainConfig(config, quota), {"sample": pieces})
    (commit,) = run(TRAIN, [training]).commits
    return commit
