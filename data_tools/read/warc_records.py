"""WARC records as bytes: where they lie in a file, plain or with a gzip member for each.

A record begins with a line "WARC/1.x", and its header says how long it is. A plain file is walked
from header to header, not searched, because a record may hold another archive. In a compressed
one a member can be found from anywhere: see `_is_member`.
"""

import io
import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from data_tools.read.compressed import BLOCK, DamagedFile
from data_tools.read.cut import cut_at, search
from data_tools.read.format import Span
from data_tools.read.record import Bad, too_long

MAGIC = b"WARC/1."
HEADER_BYTES = 1 << 16
CONTENT_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,15})[ \t]*\r?$", re.I | re.M)
RECORD_START = re.compile(rb"WARC/1\.\d\r\n")
MEMBER_START = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
STORED_BLOCK = 65_535
"""Bytes of a deflate block that holds its data as it is: its length has 16 bits."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """Header and block of a record."""

    data: bytes
    place: str
    offset: int
    """Of the record in a plain file; of its gzip member in the compressed file, plus the number of
    records before it in that member."""


def cut_warc(path: Path, size: int) -> list[Span]:
    """Cuts at records; a file that is one gzip stream is one span."""
    if path.suffix == ".gz":
        return cut_at(path, size, _next_member)
    with path.open("rb") as file:
        frames = _frames(file, 0)

        def next_start(_: BinaryIO, position: int) -> int | None:
            return next((f.start for f in frames if f.start >= position), None)

        return cut_at(path, size, next_start)


def read_warc_records(path: Path, span: Span, limit: int) -> Iterator[RawRecord | Bad]:
    """The records of a span that have at most `limit` bytes; after a fault, the next whole ones."""
    with path.open("rb") as file:
        total = file.seek(0, io.SEEK_END)
        end = total if span.end is None else span.end
        if path.suffix == ".gz":
            yield from _in_members(file, span.start, end, limit)
        else:
            yield from _in_file(file, span.start, end, limit)
    if total == 0:
        yield Bad("whole file", "empty file")


# ---- plain ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frame:
    """A record's bytes, or those up to the next record when there is a fault."""

    start: int
    end: int
    fault: str = ""


def _in_file(file: BinaryIO, start: int, end: int, limit: int) -> Iterator[RawRecord | Bad]:
    for frame in _frames(file, start):
        if frame.start >= end:
            return
        place, length = f"byte {frame.start}", frame.end - frame.start
        if frame.fault:
            yield Bad(place, frame.fault, f"{length} bytes left out")
        elif length > limit:
            yield too_long(place, length, limit)
        else:
            file.seek(frame.start)
            yield RawRecord(file.read(length), place, frame.start)


def _frames(file: BinaryIO, start: int) -> Iterator[_Frame]:
    total = file.seek(0, io.SEEK_END)
    while True:
        file.seek(start)
        header = _header(file)
        if not header:
            return
        body = file.tell()
        start = body - len(header)
        length = _block_length(header)
        if length is not None and _is_end(file, body + length, total):
            yield _Frame(start, body + length)
            start = body + length
            continue
        end = next(search(file, RECORD_START, 10, start + 1), total)
        yield _Frame(start, end, "not a WARC record" if length is None else "WARC record is cut")
        start = end


def _is_end(file: BinaryIO, position: int, total: int) -> bool:
    """Whether a record can end here: two newlines follow, or fewer and a record, or nothing."""
    file.seek(min(position, total))
    after = file.read(4 + len(MAGIC))
    begins = after.lstrip(b"\r\n")
    newlines = len(after) - len(begins)
    return position <= total and (
        after.startswith(b"\r\n\r\n") or not begins or (newlines > 0 and begins.startswith(MAGIC))
    )


def _header(file: BinaryIO) -> bytes:
    """The lines up to the blank one, or up to where they are no header; b"" at the end."""
    lines: list[bytes] = []
    size = 0
    while size < HEADER_BYTES and (line := file.readline(HEADER_BYTES)):
        if not lines and not line.strip(b"\r\n"):
            continue
        lines.append(line)
        size += len(line)
        if line in (b"\r\n", b"\n") or not lines[0].startswith(MAGIC):
            break
    return b"".join(lines)


def _block_length(header: bytes) -> int | None:
    """Bytes after the header; None when it is none."""
    whole = header.startswith(MAGIC) and header.endswith((b"\n\r\n", b"\n\n"))
    length = CONTENT_LENGTH.search(header) if whole else None
    return None if length is None else int(length[1])


# ---- compressed ----------------------------------------------------------------------------------


class GzipMember(io.RawIOBase):
    """The decompressed bytes of the gzip member that begins at `start`.

    Reads nothing at or after `limit`. Raises `DamagedFile`.
    """

    def __init__(self, file: BinaryIO, start: int, limit: int):
        self._file, self._start, self._next, self._limit = file, start, start, limit
        self._inflate = zlib.decompressobj(wbits=31)
        self.end: int | None = None
        """Where it ends in the file, once it has been read to its end with its checksum."""

    def readable(self) -> bool:
        """As RawIOBase has it."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As RawIOBase has it: 0 at the end."""
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._stored()
            try:
                out = self._inflate.decompress(data, len(buffer))
            except zlib.error as e:
                raise DamagedFile("damaged compressed file", str(e), self._start) from e
            if self._inflate.eof:
                self.end = self._next - len(self._inflate.unused_data)
            if out:
                buffer[: len(out)] = out
                return len(out)
            if not data and not self._inflate.eof:
                why = "the .gz stream has no end"
                raise DamagedFile("compressed file is cut", why, self._start)
        return 0

    def _stored(self) -> bytes:
        self._file.seek(self._next)
        data = self._file.read(min(BLOCK, self._limit - self._next))
        self._next += len(data)
        return data


def _in_members(file: BinaryIO, start: int, end: int, limit: int) -> Iterator[RawRecord | Bad]:
    position: int | None = start
    while position is not None and position < end:
        member = GzipMember(file, position, end)
        try:
            yield from _in_member(io.BufferedReader(member), position, limit)
            position = member.end
        except DamagedFile as e:
            yield e.at(f"byte {position}")
            found = search(file, MEMBER_START, 4, position + 1)
            starts = itertools.takewhile(lambda start: start < end, found)
            position = next((s for s in starts if _begins_record(GzipMember(file, s, end))), None)


def _in_member(stream: BinaryIO, start: int, limit: int) -> Iterator[RawRecord | Bad]:
    """Its records, one in almost every archive; reads it to its end."""
    index = 0
    while header := _header(stream):
        place = f"byte {start}, record {index + 1}" if index else f"byte {start}"
        length = _block_length(header)
        if length is None:
            yield Bad(place, "not a WARC record", repr(header[:40]))
            _skip(stream, None)
        elif len(header) + length > limit:
            yield too_long(place, len(header) + length, limit)
            _skip(stream, length)
        else:
            block = stream.read(length)
            if len(block) == length:
                yield RawRecord(header + block, place, start + index)
            else:
                yield Bad(place, "WARC record is cut", f"{len(block)} of {length} bytes")
        index += 1


def _skip(stream: BinaryIO, length: int | None) -> None:
    """Reads so many bytes, or all, and forgets them."""
    left = length
    while left != 0 and (data := stream.read(BLOCK if left is None else min(BLOCK, left))):
        left = None if left is None else left - len(data)


def _next_member(file: BinaryIO, position: int) -> int | None:
    starts = search(file, MEMBER_START, 4, position)
    return next((s for s in starts if _is_member(file, s)), None)


def _is_member(file: BinaryIO, start: int) -> bool:
    """Whether a member of the archive itself begins here.

    The magic alone occurs by chance. A record that holds a compressed archive has whole members in
    it, and deflate keeps what it cannot shrink as it is, but never more than `STORED_BLOCK` bytes
    in one piece. So: members with good checksums, one after the other, for longer than that, or to
    the end of the file.
    """
    total = file.seek(0, io.SEEK_END)
    position = start
    if not _begins_record(GzipMember(file, start, total)):
        return False
    while position < total and position <= start + STORED_BLOCK:
        member = GzipMember(file, position, total)
        try:
            _skip(io.BufferedReader(member), None)
        except DamagedFile:
            return False
        assert member.end is not None
        position = member.end
    return True


def _begins_record(member: GzipMember) -> bool:
    try:
        return io.BufferedReader(member, 64).read(len(MAGIC)) == MAGIC
    except DamagedFile:
        return False
