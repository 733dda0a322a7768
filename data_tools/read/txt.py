"""Plain text: a file is a document."""

from collections.abc import Iterator
from pathlib import Path

from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig


def read_txt(path: Path, source: SourceConfig) -> Iterator[Record | Bad]:
    """One record, the whole file without a byte order mark."""
    data = path.read_bytes()
    if not data:
        yield Bad(0, "empty file")
        return
    try:
        yield Record(decode(data, source.encoding), line=1, offset=0)
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        yield Bad(line, f"not {source.encoding}", f"byte {data[e.start]:#04x} at {e.start}")


def decode(data: bytes, encoding: str) -> str:
    """Strictly decoded text; a UTF-8 byte order mark is left out."""
    return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
