"""Raw files in the formats that the readers know, and broken ones among them."""

import gzip
import html
import io
import json
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from data_tools.read.record import WHOLE_FILE

FILES = 4
"""That a source of many documents is split into."""


class Row(NamedTuple):
    """A document to be written."""

    name: str
    """Unique in its source; of a tree, its path."""
    text: str
    site: str = ""
    """Host of its page; empty: it is on none."""


class Broken(NamedTuple):
    """A place that a reader must report."""

    source: str
    path: str
    place: str
    """As `data_tools.read.record.Bad` names it."""
    dropped: bool = False
    """It is read, and a rule must drop it."""


type Write = Callable[[Path, Sequence[Row]], None]


def write_jsonl(suffix: str, root: Path, rows: Sequence[Row]) -> None:
    """Lines in `FILES` files, with a given suffix."""
    for number, part in enumerate(_parts(rows)):
        data = "".join(json.dumps(_fields(row), ensure_ascii=False) + "\n" for row in part).encode()
        (root / f"part-{number}.jsonl{suffix}").write_bytes(_compressed(data, suffix))


def write_parquet(root: Path, rows: Sequence[Row]) -> None:
    """Rows in `FILES` files."""
    for number, part in enumerate(_parts(rows)):
        table = pa.Table.from_pylist([_fields(row) for row in part])
        pq.write_table(table, root / f"part-{number}.parquet", compression="zstd")


def write_tree(encoding: str, root: Path, rows: Sequence[Row]) -> None:
    """A file a document."""
    for row in rows:
        path = root / row.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row.text.encode(encoding))


def _parts(rows: Sequence[Row]) -> list[Sequence[Row]]:
    return [rows[number::FILES] for number in range(FILES)]


def _fields(row: Row) -> dict[str, str]:
    url = f"https://{row.site}/{row.name.replace(' ', '/')}" if row.site else ""
    return {"text": row.text, "name": row.name, "url": url}


def _compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data, mtime=0)
    return zstandard.compress(data) if suffix == ".zst" else data


# ---- web archive ---------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html>
<html><head><meta charset="{charset}"><title>{name}</title>
<style>.menu {{ display: flex }}</style></head>
<body><nav class="menu"><ul><li><a href="/">首页</a></li><li><a href="/news">新闻</a></li>
<li><a href="/mobile">手机版</a></li></ul></nav>
<main><article>
{paragraphs}
</article></main>
<footer><p><a href="/about">关于我们</a> | <a href="/contact">联系方式</a></p></footer>
<script>var page = "{name}"; document.title = page;</script></body></html>
"""
CHARSETS = ("utf-8", "gb18030")


def write_warc(root: Path, rows: Sequence[Row]) -> None:
    """HTML responses in `FILES` archives, a gzip member a record; a row's name is its address."""
    for number, part in enumerate(_parts(rows)):
        with (root / f"part-{number}.warc.gz").open("wb") as file:
            for row in part:
                file.write(gzip.compress(_response(row), mtime=0))


def _response(row: Row) -> bytes:
    """A record whose page does not always say its charset where a reader looks first."""
    charset = CHARSETS[len(row.text) % len(CHARSETS)]
    page = row.text
    if not page.startswith("<"):
        paragraphs = "\n".join(f"<p>{html.escape(line)}</p>" for line in row.text.split("\n"))
        page = PAGE.format(charset=charset, name=html.escape(row.name), paragraphs=paragraphs)
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page.encode(charset)
    header = (
        "WARC/1.0\r\nWARC-Type: response\r\n"
        f"WARC-Target-URI: {row.name}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, row.name)}>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return header.encode() + http + b"\r\n\r\n"


# ---- what cannot be read -------------------------------------------------------------------------


def write_broken(raw: Path, texts: Sequence[str]) -> Iterator[Broken]:
    """Files that are damaged as a whole or in places; `texts` are in them, and only there.

    Those of `texts` that come before a fault, or between two of them, must still be read.
    """
    rows = [Row(f"spare {number}", text) for number, text in enumerate(texts)]
    good = [json.dumps(_fields(row), ensure_ascii=False).encode() + b"\n" for row in rows]

    def put(source: str, path: str, data: bytes, *places: str, dropped: bool = False):
        (raw / source / path).write_bytes(data)
        return [Broken(source, path, place, dropped) for place in places]

    whole = b"".join(good[:4])
    cut = gzip.compress(whole, mtime=0)[: -len(good[3]) // 4]
    lines = zlib.decompressobj(wbits=31).decompress(cut).count(b"\n")
    yield from put("descriptions", "cut.jsonl.gz", cut, f"line {lines + 1}")
    yield from put("descriptions", "torn.jsonl.gz", whole, "line 1")  # a name that lies
    bad = [b"{broken\n", '{"text": "编码"}\n'.encode("gb18030"), b'["text"]\n', b'{"body": ""}\n']
    bad += [b'{"text": "nul \0"}\n', b'{"text": "half \\ud83d"}\n', b'{"text": 7}\n']
    mixed = [
        line for pair in zip(bad, [good[4]] + [b"\n"] * len(bad), strict=False) for line in pair
    ]
    places = [f"line {number}" for number in range(1, 2 * len(bad), 2)]
    yield from put("reference", "lines.jsonl.zst", zstandard.compress(b"".join(mixed)), *places)
    yield from put("reference", "empty.jsonl.zst", zstandard.compress(b""), WHOLE_FILE)

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_fields(row) for row in rows[5:7]]), buffer)
    yield from put("reviews", "cut.parquet", buffer.getvalue()[:-20], WHOLE_FILE)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"body": ["a column of another name"]}), buffer)
    yield from put("reviews", "columns.parquet", buffer.getvalue(), WHOLE_FILE)

    yield from put("manual", "utf16.txt", rows[7].text.encode("utf-16"), "line 1")
    yield from put("manual", "empty.txt", b"", WHOLE_FILE)
    yield from put("manual", "nul.txt", bytes(1000), "line 1", dropped=True)
    yield from put("stdlib", "latin.py", b"# caf\xe9\n", "line 1")
    yield from put("stdlib", "image.png", b"\x89PNG\r\n\x1a\n", WHOLE_FILE)


def _jsonl(suffix: str) -> Write:
    return partial(write_jsonl, suffix)


FORMATS: dict[str, Write] = {
    "novel": _jsonl(""),
    "reference": _jsonl(".zst"),
    "descriptions": _jsonl(".gz"),
    "short": _jsonl(""),
    "reviews": write_parquet,
    "crawl": write_warc,
    "manual": partial(write_tree, "gb18030"),
    "stdlib": partial(write_tree, "utf-8"),
    "packages": partial(write_tree, "utf-8"),
}
"""Source -> how it is written."""
