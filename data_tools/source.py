"""One source of raw text, as a recipe names it."""

from dataclasses import dataclass
from typing import Literal

from data_tools import thresholds


@dataclass(frozen=True)
class SourceConfig:
    """Files of one kind and origin. Documents are named by their path below `root`."""

    name: str = ""
    """Letters, digits and underscores; names shards, and is part of each document's id."""
    type: str = ""
    """Kind of text: web, book, encyclopedia, code, dialogue, or a word of your own."""
    format: str = ""
    """A reader: txt, jsonl, parquet, html, warc, mediawiki, dialogue or source_tree."""
    root: str = "."
    """Directory of the files, relative to the work directory, or absolute. It may move."""
    paths: tuple[str, ...] = ()
    """Patterns below `root` (`**` for any depth; hidden files only when spelled out)."""
    weight: float = 1.0
    """How often a token of it is drawn, relative to the other sources of its type; 0: never."""
    text_field: str = "text"
    """jsonl and parquet: the field that holds the text."""
    meta_fields: tuple[str, ...] = ()
    """jsonl, parquet and dialogue: fields kept beside the text, for example a URL."""
    encoding: Literal["utf-8", "gb18030", "big5", "auto"] = "utf-8"
    """txt, jsonl, dialogue and source_tree: how text is stored. gb18030 covers GBK and GB2312; auto
    finds the charset of each record from its bytes. The charset of a web page is always found."""
    max_record_bytes: int = 64 << 20
    """A longer record, as it is before text is taken out of it, is bad and not held in memory."""

    def __post_init__(self) -> None:
        thresholds.weight("weight", self.weight)
        if self.max_record_bytes < 1:
            raise ValueError(f"max_record_bytes={self.max_record_bytes} must be at least 1")


def partition_name(source: str, index: int) -> str:
    """Name of a source's partition; what its stages write keeps it."""
    return f"{source}-{index:05d}"


def source_of(partition: str) -> str:
    """The source of a partition; names of sources have no dash."""
    return partition.rpartition("-")[0]
