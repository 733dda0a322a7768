"""MediaWiki XML dumps, plain or compressed: an article is a record, with the text of its wikitext.

Cut at pages; a `.bz2` dump of many streams, as Wikipedia's "multistream" ones, at streams.
"""

import bz2
import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from data_tools.read.compressed import CODECS, DamagedFile, read_blocks
from data_tools.read.cut import cut_at, search
from data_tools.read.format import WHOLE, Span
from data_tools.read.record import WHOLE_FILE, Bad, Record, too_long
from data_tools.read.wikitext import plain_text
from data_tools.source import SourceConfig

PAGE, PAGE_END = b"<page>", b"</page>"
STREAM = re.compile(rb"BZh[1-9]1AY&SY")
"""Size digit and the magic of the first block: no compressed byte string has it by chance."""
STREAM_BYTES = 1 << 20
"""Enough compressed bytes for the first block, which is decompressed as a whole."""

PAGE_ID = re.compile(r"[0-9]{1,18}")

TITLE, SPACE, ID = "page/title", "page/ns", "page/id"
REDIRECT, TEXT = "page/redirect", "page/revision/text"
FIELDS = frozenset({TITLE, SPACE, ID, REDIRECT, TEXT})
ARTICLES = "0"
"""The namespace that is read: not talk, users, templates or files."""


def cut_mediawiki(path: Path, size: int) -> list[Span]:
    """Spans that begin at a page or, for `.bz2`, at a stream."""
    if path.suffix == ".bz2":
        return cut_at(path, size, _next_stream)
    return [WHOLE] if path.suffix in CODECS else cut_at(path, size, _next_page)


def _next_stream(file: BinaryIO, position: int) -> int | None:
    """Where a stream begins that begins with a page: some compressors cut anywhere."""
    for start in search(file, STREAM, 10, position):
        file.seek(start)
        with contextlib.suppress(OSError, ValueError):
            head = bz2.BZ2Decompressor().decompress(file.read(STREAM_BYTES), len(PAGE) + 100)
            if head.lstrip().startswith(PAGE):
                return start
    return None


def _next_page(file: BinaryIO, position: int) -> int | None:
    return next(search(file, re.compile(PAGE), len(PAGE), position), None)


def read_mediawiki(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """A record an article, of its last revision; its offset is the page id, its meta the title.

    Redirects and pages of other namespaces are none.
    """
    empty, rest = True, span
    while rest is not None:
        try:
            for place, page in _pages(path, rest, source.max_record_bytes):
                empty = False
                found = page if isinstance(page, Bad) else _record(page, place)
                if found is not None:
                    yield found
            rest = None
        except DamagedFile as e:
            empty = False
            yield e.at(f"stream at byte {e.frame}")
            rest = _after(path, e.frame, span)
    if empty and span == WHOLE:
        yield Bad(WHOLE_FILE, "no <page> in it")


def _after(path: Path, damaged: int, span: Span) -> Span | None:
    """The rest of a span after a stream that is damaged; only bz2's can be found."""
    with path.open("rb") as file:
        start = _next_stream(file, damaged + 1) if path.suffix == ".bz2" else None
    return None if start is None or start >= (span.end or math.inf) else Span(start, span.end)


def _pages(path: Path, span: Span, limit: int) -> Iterator[tuple[str, bytes | Bad]]:
    """(Place, bytes from <page> to </page>); what has no end or is too long is bad."""
    buffer = bytearray()
    offset = 0 if path.suffix in CODECS else span.start
    stream = f"stream at byte {span.start}, " if path.suffix in CODECS and span.start else ""
    inside, searched = False, 0
    for block in read_blocks(path, span):
        buffer += block
        while True:
            begun = PAGE_END if inside else PAGE
            found = buffer.find(begun, searched)
            place = f"{stream}byte {offset}"
            if found >= 0 and inside:
                page = bytes(buffer[: found + len(PAGE_END)])
                last = page.rfind(PAGE)
                if last:
                    yield place, Bad(place, "page without an end")
                place = f"{stream}byte {offset + last}"
                long = len(page) - last > limit
                yield place, too_long(place, len(page) - last, limit) if long else page[last:]
                gone, inside, searched = len(page), False, 0
            elif found >= 0:
                gone, inside, searched = found, True, len(PAGE)
            elif inside and len(buffer) <= limit:
                searched = max(len(PAGE), len(buffer) - len(PAGE_END))
                break
            else:
                if inside:
                    yield place, too_long(place, len(buffer), limit)
                gone, inside, searched = max(0, len(buffer) - len(PAGE)), False, 0
            del buffer[:gone]
            offset += gone
            if found < 0:
                break
    if inside:
        place = f"{stream}byte {offset}"
        yield place, Bad(place, "page without an end")


def _record(page: bytes, place: str) -> Record | Bad | None:
    try:
        fields = _fields(page)
    except expat.ExpatError as e:
        return Bad(place, "broken XML", str(e))
    if fields.get(SPACE) != ARTICLES or REDIRECT in fields:
        return None
    if not PAGE_ID.fullmatch(fields.get(ID, "")) or TEXT not in fields:
        return Bad(place, "page without an id or a text", f"fields here: {', '.join(fields)}")
    id = int(fields[ID])
    return Record(plain_text(fields[TEXT]), f"page {id}", id, {"title": fields.get(TITLE, "")})


def _fields(page: bytes) -> dict[str, str]:
    """The wanted elements of a page; of several revisions the last one's."""
    path: list[str] = []
    found: dict[str, list[str]] = {}

    def start(name: str, _: dict[str, str]) -> None:
        path.append(name)
        if len(path) <= 3 and (key := "/".join(path)) in FIELDS:
            found[key] = []

    def end(_: str) -> None:
        path.pop()

    def characters(text: str) -> None:
        if len(path) <= 3 and (key := "/".join(path)) in found:
            found[key].append(text)

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.Parse(page, True)
    return {key: "".join(pieces) for key, pieces in found.items()}
