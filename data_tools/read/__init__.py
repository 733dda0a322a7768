"""Readers: one a format, each giving the records of a file and what is bad in it."""

from data_tools.read.jsonl import read_jsonl
from data_tools.read.parquet import read_parquet
from data_tools.read.record import Reader
from data_tools.read.source_tree import read_source_tree
from data_tools.read.txt import read_txt

READERS: dict[str, Reader] = {
    "txt": read_txt,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "source_tree": read_source_tree,
}
