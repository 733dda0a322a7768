"""The demo's data: about 7 MB of real Chinese, English and code, ready in half a minute.

python -m data_tools sample --workdir=runs/demo/data
python -m data_tools build --config=configs/data/demo.py --workdir=runs/demo/data
"""

from ml_collections import ConfigDict

from data_tools.mixture import MixtureStageConfig
from data_tools.recipe import Recipe, RuleConfig
from data_tools.source import SourceConfig
from jaxlm.schema import schema

MIXTURE = (
    ("book", 45.0),
    ("code", 35.0),
    ("encyclopedia", 10.0),
    ("web", 8.0),
    ("dialogue", 2.0),
)


def _source(name: str) -> SourceConfig:
    return SourceConfig(
        name=name,
        type=name,
        format="jsonl",
        root="sample",
        paths=(f"{name}.jsonl",),
        meta_fields=("name",),
    )


def get_config() -> ConfigDict:
    """See `data_tools.recipe.Recipe` for the fields."""
    config = schema(Recipe)
    names = ("code", "encyclopedia", "web", "book", "dialogue")
    config.sources = tuple(_source(name) for name in names)
    config.inventory = "sample/sample.json"
    config.rules = (
        RuleConfig("unicode_repair"),
        RuleConfig("min_length", {"characters": 20}),
        RuleConfig("symbol_ratio", {"most": 0.1}),
    )
    config.heldout.fraction = 0.03
    config.heldout.salt = "demo 1"  # of these few documents each type gets some
    config.mixture.stages = (MixtureStageConfig(MIXTURE),)
    config.mixture.tokens = 1_740_800  # as configs/demo.py
    config.mixture.tolerance = 0.05  # machines differ in what they have
    config.tokenizer.vocab_size = 8192
    config.pack.chunk_tokens = 128
    config.pack.shard_bytes = 1 << 20
    config.partition_bytes = 1 << 20
    return config
