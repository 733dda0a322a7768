"""Readers: one a format, each giving the records of a file and what is bad in it."""

from data_tools.read.cut import cut_lines
from data_tools.read.dialogue import cut_dialogue, read_dialogue
from data_tools.read.format import Format
from data_tools.read.html import read_html
from data_tools.read.jsonl import read_jsonl
from data_tools.read.licence import licence_beside
from data_tools.read.mediawiki import cut_mediawiki, read_mediawiki
from data_tools.read.parquet import cut_parquet, read_parquet
from data_tools.read.source_tree import read_source_tree
from data_tools.read.txt import read_txt
from data_tools.read.warc import read_warc
from data_tools.read.warc_records import cut_warc

READERS: dict[str, Format] = {
    "txt": Format(read_txt),
    "jsonl": Format(read_jsonl, cut_lines),
    "html": Format(read_html),
    "warc": Format(read_warc, cut_warc),
    "mediawiki": Format(read_mediawiki, cut_mediawiki),
    "dialogue": Format(read_dialogue, cut_dialogue),
    "parquet": Format(read_parquet, cut_parquet),
    "source_tree": Format(read_source_tree, beside=licence_beside),
}
