"""General Chinese: a crawl, books, an encyclopedia, code, dialogues, in the usual proportions.

mkdir -p runs/chinese/data/raw/{web,book,encyclopedia,code,dialogue}    # text goes there
python -m data_tools build --config=configs/data/chinese.py --workdir=runs/chinese/data
python -m data_tools tokenizer evaluate --workdir=runs/chinese/data

For 20 billion tokens: state your own in mixture.tokens, and the build says which type runs short.
"""

from ml_collections import ConfigDict

from data_tools.mixture import GENERAL_CHINESE, MixtureStageConfig
from data_tools.pack.config import BucketConfig
from data_tools.recipe import Recipe
from data_tools.rule_sets import RULE_SETS
from data_tools.source import SourceConfig
from jaxlm.schema import schema

# More code and books in the last tenth, when the learning rate falls.
LATE = (("web", 20.0), ("book", 35.0), ("encyclopedia", 15.0), ("code", 20.0), ("dialogue", 10.0))


def _source(type: str, format: str, *paths: str) -> SourceConfig:
    return SourceConfig(name=type, type=type, format=format, root=f"raw/{type}", paths=paths)


def get_config() -> ConfigDict:
    """See `data_tools.recipe.Recipe` for the fields."""
    config = schema(Recipe)
    config.sources = (
        _source("web", "warc", "**/*.warc*.gz"),  # WET too: x.warc.wet.gz
        _source("book", "txt", "**/*.txt"),
        _source("encyclopedia", "mediawiki", "*.xml.bz2"),
        _source("code", "source_tree", "**/*"),
        _source("dialogue", "dialogue", "**/*.jsonl"),
    )
    config.rules = tuple(rule for rules in RULE_SETS.values() for rule in rules)
    config.mixture.stages = (
        MixtureStageConfig(GENERAL_CHINESE, until=0.9),
        MixtureStageConfig(LATE),
    )
    config.mixture.tokens = 20e9
    # Pages that earned less than half of their rules' weights are drawn half as often.
    config.pack.buckets = (BucketConfig(("web",), edges=(0.5,), weights=(0.5, 1.0)),)
    config.heldout.types = (("book", 0.005), ("dialogue", 0.005))
    config.tokenizer.vocab_size = 64_000
    return config
