"""The recipe of the salted corpus: its sources, and two choices of rules."""

from collections.abc import Collection

from data_tools.pack.config import PackConfig
from data_tools.recipe import Recipe, RuleConfig
from data_tools.rule_sets import RULE_SETS
from data_tools.source import SourceConfig
from data_tools.tokenizer.config import TokenizerConfig

NAMED = ("name", "url")
TREE = ("**/*",)
SOURCES = (
    SourceConfig("novel", "book", "jsonl", "raw/novel", TREE, meta_fields=NAMED),
    SourceConfig("reference", "encyclopedia", "jsonl", "raw/reference", TREE, meta_fields=NAMED),
    SourceConfig("descriptions", "web", "jsonl", "raw/descriptions", TREE, meta_fields=NAMED),
    SourceConfig("short", "dialogue", "jsonl", "raw/short", TREE, meta_fields=NAMED),
    SourceConfig("reviews", "web", "parquet", "raw/reviews", TREE, meta_fields=NAMED),
    SourceConfig("crawl", "web", "warc", "raw/crawl", TREE),
    SourceConfig("manual", "encyclopedia", "txt", "raw/manual", TREE, encoding="gb18030"),
    SourceConfig("stdlib", "code", "source_tree", "raw/stdlib", TREE),
    SourceConfig("packages", "code", "source_tree", "raw/packages", TREE),
)
FEW_RULES = (
    RuleConfig("unicode_repair"),
    RuleConfig("mojibake"),
    RuleConfig("min_length", {"characters": 5}),
)
"""They keep almost everything: what a threshold takes says nothing about the stages after it."""
ALL_RULES = tuple(rule for rules in RULE_SETS.values() for rule in rules)
"""Those of a real build."""
PARTITION_BYTES = 8 << 20


def recipe(present: Collection[str], rules: tuple[RuleConfig, ...]) -> Recipe:
    """For the sources that are there; two workers."""
    return Recipe(
        sources=tuple(s for s in SOURCES if s.name in present),
        rules=rules,
        tokenizer=TokenizerConfig(vocab_size=64_000, sample_bytes=32 << 20),
        pack=PackConfig(chunk_tokens=512),
        partition_bytes=PARTITION_BYTES,
        workers=2,
    )
