"""Lines of a file, plain or compressed, with what lies before a cut or a fault."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import zstandard

from data_tools.read.record import Bad

BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline."""

    data: bytes
    number: int
    """From 1."""
    offset: int
    """Of its first byte in the decompressed file."""


class Decompressor(Protocol):
    """The part that zlib's and zstandard's decompression objects share: one frame each."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip() -> Decompressor:
    return zlib.decompressobj(wbits=31)


def _zstd() -> Decompressor:
    return zstandard.ZstdDecompressor().decompressobj()


DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {".gz": _gzip, ".zst": _zstd}


def read_lines(path: Path) -> Iterator[Line | Bad]:
    """The lines of a file; `.gz` and `.zst` are decompressed.

    A compressed file that is cut or damaged gives its whole lines up to there, then a `Bad`.
    """
    number, offset = 1, 0
    pieces: list[bytes] = []
    try:
        for block in _blocks(path):
            *ends, rest = block.split(b"\n")
            for end in ends:
                line = Line(b"".join([*pieces, end]), number, offset)
                pieces.clear()
                number, offset = number + 1, offset + len(line.data) + 1
                yield line
            if rest:
                pieces.append(rest)
    except (zlib.error, zstandard.ZstdError) as e:
        yield Bad(number, "damaged compressed file", str(e))
    except EOFError:
        yield Bad(number, "compressed file is cut", f"the {path.suffix} stream has no end")
    else:
        if pieces:
            yield Line(b"".join(pieces), number, offset)


def _blocks(path: Path) -> Iterator[bytes]:
    factory = DECOMPRESSORS.get(path.suffix)
    with path.open("rb") as f:
        if factory is None:
            while block := f.read(BLOCK):
                yield block
            return
        # Both libraries' file objects would do less: zstandard's takes a cut file for a whole one.
        frame: Decompressor | None = None
        while data := f.read(BLOCK):
            while data:
                frame = frame or factory()
                yield frame.decompress(data)
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
        if frame is not None:
            raise EOFError
