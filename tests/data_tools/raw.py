"""Raw files of every format, for the tests of their readers."""

import bz2
import gzip
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.read import READERS
from data_tools.read.format import WHOLE, Span
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig

FORMATS = {
    ".jsonl": "jsonl",
    ".html": "html",
    ".warc": "warc",
    ".wet": "warc",
    ".xml": "mediawiki",
    ".json": "dialogue",
    ".parquet": "parquet",
    ".py": "source_tree",
    ".txt": "txt",
}
"""First suffix of a file -> its reader, unless a test names another."""


def read_span(path: Path, source: SourceConfig, span: Span = WHOLE) -> list[Record | Bad]:
    """What a format's reader gives."""
    return list(READERS[source.format].read(path, source, span))


def read_bytes(path: Path, data: bytes, **fields: object) -> list[Record | Bad]:
    """Writes a file and reads it by its suffix; `fields` are of its source."""
    path.write_bytes(data)
    values: dict[str, object] = {"name": "s", "type": "web", "root": str(path.parent)}
    values["format"] = FORMATS.get(path.suffixes[0], "")
    return read_span(path, SourceConfig(**{**values, **fields}))


def texts(found: Sequence[Record | Bad]) -> list[str]:
    """Of the records."""
    return [r.text for r in found if isinstance(r, Record)]


def bad(found: Sequence[Record | Bad]) -> list[tuple[str, str]]:
    """(Place, reason) of the others."""
    return [(b.place, b.reason) for b in found if isinstance(b, Bad)]


# ---- WARC ----------------------------------------------------------------------------------------


def warc_record(kind: str, block: bytes, url: str = "http://www.a.cn/", **headers: str) -> bytes:
    """A record of an archive."""
    names = {"WARC-Type": kind, "WARC-Target-URI": url, "WARC-Date": "2026-01-02T03:04:05Z"}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
    length = f"Content-Length: {len(block)}\r\n\r\n"
    return b"WARC/1.0\r\n" + (head + length).encode() + block + b"\r\n\r\n"


def response(body: bytes, kind: str = "text/html", status: str = "200 OK", more: str = "") -> bytes:
    """A record with what a server answered."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}\r\n"
    return warc_record("response", head.encode() + body, Content_Type="application/http")


def page(words: str) -> bytes:
    """HTML with one paragraph."""
    return f"<html><body><p>{words}</p></body></html>".encode()


# ---- MediaWiki -----------------------------------------------------------------------------------


def wiki_page(id: int, title: str, text: str, space: int = 0, more: str = "") -> str:
    """A page of a dump."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{space}</ns>\n    <id>{id}</id>\n{more}"
        f"    <revision>\n      <id>9{id}</id>\n      <text xml:space='preserve'>{text}</text>\n"
        "    </revision>\n  </page>\n"
    )


HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="zh">\n'
TAIL = "</mediawiki>\n"


# ---- one file of each format, of records of many lengths -----------------------------------------


def lengths(seed: int, count: int) -> list[str]:
    """Texts from one character to some thousands."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 7, 60, 500, 3000)) for _ in range(count)]
    return ["".join(rng.choices("天地玄黄abc ", k=size)) + f"{i}." for i, size in enumerate(sizes)]


def write_jsonl_file(path: Path, count: int = 40) -> None:
    """Lines, with blank and broken ones, and escaped newlines inside."""
    lines = [json.dumps({"text": t + "\n\n"}, ensure_ascii=False) for t in lengths(1, count)]
    lines[3], lines[7], lines[8] = "", "{", "[1]"
    path.write_text("\n".join(lines), encoding="utf-8")


def warc_members(count: int = 30) -> list[bytes]:
    """Records; one holds text that looks like a record, another a compressed archive."""
    records = [response(page(t)) for t in lengths(2, count)]
    records[5] = response(b"<p>\r\n\r\n" + warc_record("response", page("inner")) + b"</p>")
    inner = b"".join(gzip.compress(response(page(f"nested {i}"))) for i in range(20))
    records[6] = response(random.Random(3).randbytes(300) + inner, "application/gzip")
    records[9] = warc_record("warcinfo", b"software: x\r\n")
    return records


def write_warc(path: Path) -> None:
    """Plain."""
    path.write_bytes(b"".join(warc_members()))


def write_warc_gz(path: Path) -> None:
    """A member for each record; the one with an archive in it is stored, not shrunk."""
    levels = [0 if i == 6 else 6 for i in range(30)]
    members = zip(warc_members(), levels, strict=True)
    path.write_bytes(b"".join(gzip.compress(r, level) for r, level in members))


def _wiki_pages(count: int) -> list[str]:
    pages = [wiki_page(10 + i, f"T{i}", t) for i, t in enumerate(lengths(4, count))]
    pages[2] = wiki_page(12, "Talk", "talk", space=1)
    pages[4] = wiki_page(14, "Escaped", "a <page> in it </page> <page>")
    pages[5] = "  <page>\n    <title>broken & bare</title>\n  </page>\n"
    return pages


def write_wiki(path: Path) -> None:
    """Plain."""
    path.write_text(HEAD + "".join(_wiki_pages(30)) + TAIL, encoding="utf-8")


def write_wiki_bz2(path: Path) -> None:
    """Streams of four pages."""
    pages = _wiki_pages(30)
    parts = [HEAD, *("".join(pages[i : i + 4]) for i in range(0, 30, 4)), TAIL]
    path.write_bytes(b"".join(bz2.compress(p.encode()) for p in parts))


def write_parquet(path: Path) -> None:
    """Row groups of seven rows, with a null."""
    rows: list[str | None] = [*lengths(5, 40)]
    rows[8] = None
    out = io.BytesIO()
    pq.write_table(pa.table({"text": rows}), out, row_group_size=7)
    path.write_bytes(out.getvalue())


def write_dialogues(path: Path) -> None:
    """Lines, a broken one among them."""
    lines = [json.dumps([[t, "answer"]], ensure_ascii=False) for t in lengths(6, 40)]
    lines[6] = '[["alone"]]'
    path.write_text("\n".join(lines), encoding="utf-8")
