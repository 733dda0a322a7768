"""Lines of a file, plain or compressed, with what lies before a cut or a fault."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_tools.read.compressed import DamagedFile, read_blocks
from data_tools.read.format import Span
from data_tools.read.record import Bad, too_long


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline."""

    data: bytes
    place: str
    """"line N" from 1, or "byte N" where the span does not begin with the file."""
    offset: int
    """Of its first byte in the decompressed file."""


def read_lines(path: Path, span: Span, limit: int) -> Iterator[Line | Bad]:
    """The lines of a span; one longer than `limit` bytes is bad, and never held in memory.

    A compressed file that is cut or damaged gives its whole lines up to there, then a `Bad`.
    """
    number, offset, length = 1, span.start, 0
    pieces: list[bytes] = []

    def place() -> str:
        return f"byte {offset}" if span.start else f"line {number}"

    def line() -> Line | Bad:
        if length > limit:
            return too_long(place(), length, limit)
        return Line(b"".join(pieces), place(), offset)

    try:
        for block in read_blocks(path, span):
            *ends, rest = block.split(b"\n")
            for end in ends:
                pieces.append(end)
                length += len(end)
                yield line()
                pieces.clear()
                number, offset, length = number + 1, offset + length + 1, 0
            length += len(rest)
            if length > limit:
                pieces.clear()
            elif rest:
                pieces.append(rest)
    except DamagedFile as e:
        yield e.at(place())
    else:
        if length:
            yield line()
