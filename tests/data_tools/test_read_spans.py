"""Cutting: however a file is cut, its records come out once, with the same offsets."""

import gzip
import io
import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from data_tools.document import read_tables
from data_tools.read import READERS
from data_tools.read.compressed import BLOCK
from data_tools.read.cut import cut_lines, search
from data_tools.read.format import WHOLE, Span
from data_tools.read.partition import LEAST_SPAN, READ, plan
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig
from tests.data_tools import raw
from tests.data_tools.raw import bad, read_span, texts

FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a.jsonl": ("jsonl", raw.write_jsonl_file),
    "a.warc": ("warc", raw.write_warc),
    "a.warc.gz": ("warc", raw.write_warc_gz),
    "a.xml": ("mediawiki", raw.write_wiki),
    "a.xml.bz2": ("mediawiki", raw.write_wiki_bz2),
    "a.parquet": ("parquet", raw.write_parquet),
    "b.jsonl": ("dialogue", raw.write_dialogues),
}
SIZES = (1, 2, 13, 100, 777, 2000, 4096, 10_000)


@pytest.mark.parametrize("name", FILES)
def test_every_record_comes_once_however_a_file_is_cut(tmp_path, name):
    format, write = FILES[name]
    path = tmp_path / name
    write(path)
    source = SourceConfig("s", "web", format)
    whole = read_span(path, source)
    assert len(texts(whole)) > 20 and bad(whole)
    counts = set()
    for size in SIZES:
        spans = READERS[format].cut(path, size)
        counts.add(len(spans))
        assert spans[0].start == 0 and spans[-1].end is None
        assert all(a.end == b.start for a, b in itertools.pairwise(spans))
        found = [f for span in spans for f in read_span(path, source, span)]
        assert _content(found) == _content(whole)
    assert max(counts) > 5 and len(counts) > 3


def _content(found: list[Record | Bad]) -> list[tuple[object, ...]]:
    """All but the place, which is a line only in the first span."""
    return [
        (f.text, f.offset, f.meta) if isinstance(f, Record) else (f.reason, f.detail) for f in found
    ]


def test_formats_that_are_never_cut_say_so(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000))
    assert READERS["jsonl"].cut(tmp_path / "a.jsonl.gz", 10) == [WHOLE]
    (tmp_path / "a.json").write_bytes(b"[[]]" * 100)
    assert READERS["dialogue"].cut(tmp_path / "a.json", 10) == [WHOLE]
    for format in ("txt", "html", "source_tree"):
        assert READERS[format].cut(tmp_path / "a.json", 10) == [WHOLE]


@pytest.mark.parametrize("seed", range(30))
def test_lines_of_any_shape(tmp_path, seed):
    rng = random.Random(seed)
    data = b"".join(rng.choice((b"\n", b"\n\n", b"x", b"xy" * 50, b"\r\n")) for _ in range(200))
    (tmp_path / "a").write_bytes(data)
    lines = data.split(b"\n")
    starts = {sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines))}
    spans = cut_lines(tmp_path / "a", rng.randint(1, 60))
    assert {s.start for s in spans} <= starts
    pieces = [data[s.start : s.end] for s in spans]
    assert b"".join(pieces) == data and all(pieces[:-1])


@pytest.mark.parametrize("at", [0, 1, BLOCK - 5, BLOCK - 1, BLOCK, BLOCK + 3, 2 * BLOCK - 2])
def test_search_finds_what_lies_across_blocks(at):
    data = bytes(at) + b"needle" + bytes(100) + b"needle" + b"need"
    pattern = re.compile(b"needle")
    for start in (0, at):
        assert list(search(io.BytesIO(data), pattern, 6, start)) == [at, at + 106]
    assert list(search(io.BytesIO(data), pattern, 6, at + 1)) == [at + 106]


def test_a_compressed_archive_inside_an_archive_is_not_cut_apart(tmp_path):
    """Deflate stores what it cannot shrink: the inner members lie in the file as they are."""
    inner = b"".join(
        gzip.compress(raw.response(random.Random(i).randbytes(900))) for i in range(60)
    )
    records = [raw.response(inner, "application/gzip")] + [
        raw.response(raw.page(f"p {i}")) for i in range(5)
    ]
    members = [gzip.compress(r, 6 if i else 0) for i, r in enumerate(records)]
    data = b"".join(members)
    (tmp_path / "a.warc.gz").write_bytes(data)
    assert data.count(b"\x1f\x8b\x08") > 40
    starts = {sum(map(len, members[:i])) for i in range(6)}
    for size in (100, 1000, 5000, 20_000):
        spans = READERS["warc"].cut(tmp_path / "a.warc.gz", size)
        assert len(spans) > 1 and {s.start for s in spans} <= starts


# ---- in the stage --------------------------------------------------------------------------------


def big(name: str = "s") -> SourceConfig:
    return SourceConfig(name, "web", "jsonl", "raw", ("*.jsonl",))


def test_a_big_file_becomes_partitions_and_small_ones_stay_together(tmp_path):
    (tmp_path / "raw").mkdir()
    lines = b"".join(b'{"text": "%d %s"}\n' % (i, b"x" * 900) for i in range(400))
    for name, data in (("a", b'{"text": "a"}\n'), ("b", lines), ("c", b"{}"), ("d", b"{}")):
        (tmp_path / f"raw/{name}.jsonl").write_bytes(data)
    size = 2 * LEAST_SPAN
    partitions = plan(big(), tmp_path, size)
    files = [[i.name for i in p.inputs["files"]] for p in partitions]
    assert files == [["a.jsonl"], ["b.jsonl"], ["b.jsonl"], ["b.jsonl"], ["c.jsonl", "d.jsonl"]]
    spans = [p.config.span for p in partitions]
    assert spans[0] == spans[-1] == WHOLE and spans[1].start == 0 and spans[3].end is None
    assert 0 <= (spans[1].end or 0) - size < 1000
    whole, parts = (
        _documents(plan(big(), tmp_path, 1 << 30), tmp_path),
        _documents(partitions, tmp_path),
    )
    assert whole == parts and len(whole) == 401
    assert plan(big(), tmp_path, 1)[1].config.span != Span(0, 1), "a span has a least size"


def test_a_file_that_is_cut_is_one_file(tmp_path):
    (tmp_path / "raw").mkdir()
    lines = b"".join(b'{"text": "%d %s"}\n' % (i, b"x" * 900) for i in range(400))
    for name, data in (("a", b'{"text": "a"}\n'), ("b", lines), ("c", b"{}")):
        (tmp_path / f"raw/{name}.jsonl").write_bytes(data)
    counts = []
    for size in (1, 2 * LEAST_SPAN, 1 << 30):
        reports = []
        for partition in plan(big(), tmp_path, size):
            (tmp_path / partition.name).mkdir(exist_ok=True)
            reports.append(READ.run(partition, tmp_path / partition.name))
        counts.append([sum(r[n] for r in reports) for n in ("files", "documents", "text_bytes")])
        counts[-1].append(sum(sum(r["bad"].values()) for r in reports))
    assert counts[0] == counts[1] == counts[2] == [3, 401, counts[0][2], 1]


def _documents(partitions, tmp_path: Path) -> list[tuple[bytes, int, str]]:
    found = []
    for partition in partitions:
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        READ.run(partition, out)
        documents = read_tables([out / "documents.parquet"])
        found += [(d.id, d.offset, d.text) for d in documents]
    return found


# ---- records that are too long -------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_record_that_is_too_long_is_named_and_the_others_are_read(tmp_path, name):
    format, write = FILES[name]
    write(tmp_path / name)
    source = SourceConfig("s", "web", format, max_record_bytes=2000)
    every = read_span(tmp_path / name, SourceConfig("s", "web", format))
    found = read_span(tmp_path / name, source)
    dropped = {r for _, r in bad(found)} - {r for _, r in bad(every)}
    assert dropped == {"record too long"}
    assert 10 < len(texts(found)) < len(texts(every)) and set(texts(found)) < set(texts(every))
    detail = next(f.detail for f in found if isinstance(f, Bad) and f.reason == "record too long")
    assert "max_record_bytes=2000" in detail


@pytest.mark.parametrize("format", ["txt", "html", "source_tree"])
def test_a_file_that_is_too_long(tmp_path, format):
    (tmp_path / "a.py").write_bytes(b"x" * 101)
    source = SourceConfig("s", "web", format, str(tmp_path), max_record_bytes=100)
    detail = "101 bytes, max_record_bytes=100"
    assert read_span(tmp_path / "a.py", source) == [Bad("whole file", "record too long", detail)]


def test_places_are_lines_in_the_first_span_and_bytes_later(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{\n{"text": "a"}\n{\n')
    source = SourceConfig("s", "web", "jsonl")
    assert bad(read_span(tmp_path / "a.jsonl", source, Span(0, 2))) == [("line 1", "broken JSON")]
    found = read_span(tmp_path / "a.jsonl", source, Span(2, None))
    assert bad(found) == [("byte 16", "broken JSON")]
