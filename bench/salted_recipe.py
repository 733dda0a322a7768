"""The recipe that builds the salted corpus: its sources, the rules of a web corpus, all stages."""

from collections.abc import Collection

from data_tools.recipe import PackConfig, Recipe, RuleConfig, TokenizerConfig
from data_tools.source import SourceConfig

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
PARTITION_BYTES = 8 << 20


def recipe(present: Collection[str], workers: int) -> Recipe:
    """For the sources that are there.

    Rules that keep almost everything: what is measured is which documents the corpus-wide stages
    take, and a page that a threshold took first would say nothing about them.
    """
    return Recipe(
        sources=tuple(s for s in SOURCES if s.name in present),
        rules=(RuleConfig("unicode_repair"), RuleConfig("min_length", {"characters": 5})),
        tokenizer=TokenizerConfig(vocab_size=8192, sample_bytes=4 << 20),
        pack=PackConfig(chunk_tokens=512),
        partition_bytes=PARTITION_BYTES,
        workers=workers,
    )
