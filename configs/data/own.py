"""A recipe to copy for text of your own: jsonl files with a field "text".

mkdir -p runs/own/data && ln -s /where/your/text/lies runs/own/data/text
python -m data_tools build --config=configs/data/own.py --workdir=runs/own/data
"""

from ml_collections import ConfigDict

from data_tools.recipe import Recipe
from data_tools.rule_sets import RULE_SETS
from data_tools.source import SourceConfig
from jaxlm.schema import schema


def get_config() -> ConfigDict:
    """See `data_tools.recipe.Recipe` for the fields."""
    config = schema(Recipe)
    # One entry a kind of text. Formats are in docs/data.md: jsonl, parquet, warc, html, txt, ...
    config.sources = (
        SourceConfig(name="text", type="web", format="jsonl", root="text", paths=("**/*.jsonl*",)),
    )
    # For another kind of text its own set: "book", "encyclopedia", "code", "dialogue", or a sum.
    config.rules = RULE_SETS["web"]
    config.heldout.fraction = 0.01
    config.tokenizer.vocab_size = 32_000  # as configs/own.py; a small corpus wants fewer
    config.pack.chunk_tokens = 512
    return config
