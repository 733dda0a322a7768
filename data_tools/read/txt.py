"""Plain text: a file is a document."""

from collections.abc import Iterator
from pathlib import Path

from data_tools.read.charset import decode, undecodable
from data_tools.read.format import Span
from data_tools.read.record import Bad, Record
from data_tools.read.whole_file import read_whole
from data_tools.source import SourceConfig


def read_txt(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """One record, the whole file without a byte order mark."""
    data = read_whole(path, source.max_record_bytes)
    if isinstance(data, Bad):
        yield data
        return
    try:
        yield Record(decode(data, source.encoding), "line 1", 0)
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        yield undecodable(f"line {line}", source.encoding, e)
