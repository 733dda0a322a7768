"""The bytes of a file or a part of it, decompressed by its suffix, with what is damaged or cut."""

import bz2
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import zstandard

from data_tools.read.format import Span
from data_tools.read.record import Bad

BLOCK = 1 << 16


class DamagedFile(Exception):
    """Compressed bytes that end too early, or that no compressor wrote."""

    def __init__(self, reason: str, detail: str, frame: int):
        super().__init__(reason, detail, frame)
        self.reason, self.detail, self.frame = reason, detail, frame
        """`frame`: where in the file the frame begins that is damaged."""

    def at(self, place: str) -> Bad:
        """The same as a bad place."""
        return Bad(place, self.reason, self.detail)


class Decompressor(Protocol):
    """What the libraries' decompression objects share: one frame each."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True)
class Codec:
    """A compression format."""

    frame: Callable[[], Decompressor]
    feed: int
    """Bytes decompressed at a time: at the highest ratio they become less than 100 MB."""


def _gzip() -> Decompressor:
    return zlib.decompressobj(wbits=31)


def _zstd() -> Decompressor:
    return zstandard.ZstdDecompressor().decompressobj()


CODECS = {
    ".gz": Codec(_gzip, 1 << 14),
    ".bz2": Codec(bz2.BZ2Decompressor, 1 << 6),
    ".zst": Codec(_zstd, 1 << 10),
}


def read_blocks(path: Path, span: Span) -> Iterator[bytes]:
    """What lies in a span of a file, in pieces; raises `DamagedFile` after what is whole.

    A span of a compressed file begins and ends where a frame does.
    """
    codec = CODECS.get(path.suffix)
    if codec is None:
        yield from _stored(path, span)
        return
    # The libraries' file objects would do less: zstandard's takes a cut file for a whole one, and
    # bz2's what is damaged after a frame for its end.
    frame: Decompressor | None = None
    begun = position = span.start
    for block in _stored(path, span):
        for i in range(0, len(block), codec.feed):
            data = block[i : i + codec.feed]
            position += len(data)
            while data:
                if frame is None:
                    frame, begun = codec.frame(), position - len(data)
                try:
                    yield frame.decompress(data)
                except (zlib.error, zstandard.ZstdError, OSError, ValueError) as e:  # two are bz2's
                    raise DamagedFile("damaged compressed file", str(e), begun) from e
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise DamagedFile("compressed file is cut", f"the {path.suffix} stream has no end", begun)


def _stored(path: Path, span: Span) -> Iterator[bytes]:
    with path.open("rb") as file:
        position = file.seek(span.start)
        while True:
            room = BLOCK if span.end is None else min(BLOCK, span.end - position)
            block = file.read(room)
            if not block:
                return
            position += len(block)
            yield block
