"""Readers: every bad place is counted where it is, and nothing after it is lost."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_tools.document import DataError, Document, read_tables
from data_tools.read import READERS
from data_tools.read.compressed import BLOCK
from data_tools.read.format import WHOLE
from data_tools.read.lines import Line, read_lines
from data_tools.read.partition import READ, ReadConfig, plan, read_partition
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig
from data_tools.stage import Partition, Report

GOOD = b'{"text": "one"}\n{"text": "two"}\n'


def read(tmp_path: Path, name: str, data: bytes, **fields: object) -> list[Record | Bad]:
    path = tmp_path / name
    path.write_bytes(data)
    format = "jsonl" if ".jsonl" in name else str(fields.pop("format", "txt"))
    source = SourceConfig("s", "web", format, str(tmp_path), **fields)
    return list(READERS[format].read(path, source, WHOLE))


def texts(found: list[Record | Bad]) -> list[str]:
    return [r.text for r in found if isinstance(r, Record)]


def bad(found: list[Record | Bad]) -> list[tuple[str, str]]:
    return [(b.place, b.reason) for b in found if isinstance(b, Bad)]


# ---- jsonl ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut', "broken JSON"),
        (b"\x00\x01\x02", "broken JSON"),
        (b"[" * 100_000, "broken JSON"),
        (b'{"text": ' + b"9" * 5000 + b"}", "broken JSON"),
        (b'{"text": "\xd6\xd0"}', "not utf-8"),
        (b'["text"]', "not a JSON object"),
        (b'{"txet": "x"}', "no field 'text'"),
        (b'{"text": null}', "'text' is not a string"),
        (b'{"text": 7}', "'text' is not a string"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_kept(tmp_path, line, reason):
    found = read(tmp_path, "a.jsonl", GOOD + line + b"\n" + b'{"text": "three"}\n')
    assert texts(found) == ["one", "two", "three"]
    assert bad(found) == [("line 3", reason)]


def test_offsets_point_at_the_line(tmp_path):
    data = b'{"text": "\xe4\xb8\xad"}\r\n\n{"text": "b"}'
    first, second = read(tmp_path, "a.jsonl", data)
    assert isinstance(first, Record) and isinstance(second, Record)
    assert (first.place, first.offset) == ("line 1", 0)
    assert (second.place, second.offset) == ("line 3", 18)
    assert json.loads(data[second.offset :]) == {"text": "b"}


def test_byte_order_mark_and_missing_last_newline(tmp_path):
    found = read(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + GOOD.rstrip())
    assert texts(found) == ["one", "two"] and not bad(found)


def test_fields_kept_as_meta(tmp_path):
    data = b'{"text": "x", "url": "http://a", "n": [1, "\\ud800"], "other": 1}\n'
    (record,) = read(tmp_path, "a.jsonl", data, meta_fields=("url", "n", "absent"))
    assert isinstance(record, Record)
    assert record.meta == {"url": "http://a", "n": '[1, "\\ud800"]'}


def test_gb18030(tmp_path):
    data = '{"text": "中文㐀"}\n'.encode("gb18030")
    assert texts(read(tmp_path, "a.jsonl", data, encoding="gb18030")) == ["中文㐀"]


@pytest.mark.parametrize("data", [b"", b"\n \r\n"])
def test_a_file_without_a_record_is_bad(tmp_path, data):
    assert bad(read(tmp_path, "a.jsonl", data)) == [("whole file", "empty file")]


# ---- compression ---------------------------------------------------------------------------------

LINES = b"".join(
    b'{"text": "line %d %s"}\n' % (i, os.urandom(40).hex().encode()) for i in range(9000)
)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd)])
class TestCompressed:
    def test_whole_file(self, tmp_path, suffix, compress):
        found = read(tmp_path, f"a.jsonl{suffix}", compress(LINES))
        assert len(texts(found)) == 9000 and not bad(found)

    def test_frames_one_after_the_other(self, tmp_path, suffix, compress):
        data = compress(LINES) + compress(GOOD)
        found = read(tmp_path, f"a.jsonl{suffix}", data)
        assert len(texts(found)) == 9002 and not bad(found)

    def test_a_cut_file_gives_its_whole_lines_and_says_so(self, tmp_path, suffix, compress):
        data = compress(LINES)
        found = read(tmp_path, f"a.jsonl{suffix}", data[: len(data) * 2 // 3])
        count = len(texts(found))
        assert 4000 < count < 9000
        assert texts(found) == [json.loads(line)["text"] for line in LINES.splitlines()[:count]]
        assert bad(found) == [(f"line {count + 1}", "compressed file is cut")]

    def test_damage_in_the_middle(self, tmp_path, suffix, compress):
        data = bytearray(compress(LINES))
        data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
        found = read(tmp_path, f"a.jsonl{suffix}", bytes(data))
        reasons = [reason for _, reason in bad(found)]
        assert reasons[-1] == "damaged compressed file"
        assert texts(found)[0] == json.loads(LINES.splitlines()[0])["text"]

    def test_not_compressed_at_all(self, tmp_path, suffix, compress):
        assert bad(read(tmp_path, f"a.jsonl{suffix}", GOOD)) == [
            ("line 1", "damaged compressed file")
        ]

    def test_empty(self, tmp_path, suffix, compress):
        assert bad(read(tmp_path, f"a.jsonl{suffix}", b"")) == [("whole file", "empty file")]
        assert bad(read(tmp_path, f"b.jsonl{suffix}", compress(b""))) == [
            ("whole file", "empty file")
        ]


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_lines_across_blocks(tmp_path, size):
    path = tmp_path / "a"
    path.write_bytes(b"x" * size + b"\n\nend")
    assert list(read_lines(path, WHOLE, 1 << 20)) == [
        Line(b"x" * size, "line 1", 0),
        Line(b"", "line 2", size + 1),
        Line(b"end", "line 3", size + 2),
    ]


# ---- txt and source trees ------------------------------------------------------------------------


def test_txt_is_one_record_as_it_is(tmp_path):
    text = "一\r\n\ttwo\x00\n"
    found = read(tmp_path, "a.txt", b"\xef\xbb\xbf" + text.encode())
    assert found == [Record(text, "line 1", 0)]


def test_txt_in_another_encoding_names_the_line(tmp_path):
    found = read(tmp_path, "a.txt", b"fine\nfine\n" + "中文".encode("gbk"))
    assert found == [Bad("line 3", "not utf-8", "byte 0xd6 at 10")]
    assert texts(read(tmp_path, "a.txt", "中文".encode("gbk"), encoding="gb18030")) == ["中文"]


def test_source_tree_knows_the_language_and_refuses_others(tmp_path):
    (record,) = read(tmp_path, "a.PY", b"x = 1\n", format="source_tree")
    assert isinstance(record, Record) and record.meta["language"] == "python"
    found = read(tmp_path, "a.bin", b"x", format="source_tree")
    assert found == [Bad("whole file", "suffix of no language in read/source_tree.py", ".bin")]
    assert bad(read(tmp_path, "e.c", b"", format="source_tree")) == [("whole file", "empty file")]


# ---- parquet -------------------------------------------------------------------------------------


def parquet(tmp_path: Path, table: pa.Table, **fields: object) -> list[Record | Bad]:
    pq.write_table(table, tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    return read(tmp_path, "a.parquet", data, format="parquet", **fields)


def test_parquet_rows(tmp_path):
    table = pa.table({"text": ["a", None, "c"], "url": ["u", "v", None]})
    first, null, last = parquet(tmp_path, table, meta_fields=("url",))
    assert first == Record("a", "row 1", 0, {"url": "u"})
    assert null == Bad("row 2", "'text' is not a string", "null")
    assert isinstance(last, Record) and (last.place, last.offset) == ("row 3", 2)


def test_parquet_of_another_shape(tmp_path):
    assert bad(parquet(tmp_path, pa.table({"body": ["a"]}))) == [("whole file", "no field 'text'")]
    found = parquet(tmp_path, pa.table({"text": [1]}))
    assert found == [Bad("whole file", "'text' is not a string", "int64")]
    empty = pa.table({"text": pa.array([], pa.string())})
    assert bad(parquet(tmp_path, empty)) == [("whole file", "empty file")]


def test_parquet_with_invalid_utf8(tmp_path):
    column = pa.array([b"good", b"\xff\xfe", b"more"]).view(pa.string())
    found = parquet(tmp_path, pa.table({"text": column}))
    assert texts(found) == ["good", "more"] and bad(found) == [("row 2", "not utf-8")]


def test_parquet_meta_that_is_no_python_value(tmp_path):
    texts_, times = pa.array(["a", "b"]), pa.array([1, 2], pa.timestamp("ns"))
    found = parquet(tmp_path, pa.table({"text": texts_, "time": times}), meta_fields=("time",))
    assert texts(found) == ["a", "b"] and not bad(found)
    assert isinstance(found[0], Record)
    assert found[0].meta == {"time": "1970-01-01 00:00:00.000000001"}
    days = pa.array([1 << 30, 0], pa.date32())
    found = parquet(tmp_path, pa.table({"text": texts_, "day": days}), meta_fields=("day",))
    assert texts(found) == ["a", "b"]
    url = pa.array([b"\xff\xfe", b"u"]).view(pa.string())
    found = parquet(tmp_path, pa.table({"text": texts_, "url": url}), meta_fields=("url",))
    assert texts(found) == ["b"] and bad(found) == [("row 1", "not utf-8")]


@pytest.mark.parametrize(
    ("names", "twice"), [(["text", "text"], "text"), (["text", "m", "m"], "m")]
)
def test_parquet_with_two_columns_of_one_name(tmp_path, names, twice):
    table = pa.Table.from_arrays([pa.array(["a"])] * len(names), names)
    found = parquet(tmp_path, table, meta_fields=("m",))
    assert bad(found) == [("whole file", f"more than one column {twice!r}")]


def test_parquet_damaged(tmp_path):
    pq.write_table(pa.table({"text": ["a" * 100] * 1000}), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    for broken in (b"", b"PAR1", data[:-20], os.urandom(2000)):
        found = read(tmp_path, "a.parquet", broken, format="parquet")
        assert bad(found) == [("whole file", "damaged Parquet file")]


# ---- the stage -----------------------------------------------------------------------------------


def source(**fields: object) -> SourceConfig:
    values = {
        "name": "s",
        "type": "web",
        "format": "jsonl",
        "root": "raw",
        "paths": ("**/*.jsonl",),
    }
    return SourceConfig(**values | fields)


def read_all(tmp_path: Path, **fields: object) -> tuple[list[Document], Report]:
    (partition,) = plan(source(**fields), tmp_path, 1 << 30)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    report = READ.run(partition, out)
    return list(read_tables([out / "documents.parquet"])), report


def test_documents_and_report(tmp_path):
    (tmp_path / "raw/sub").mkdir(parents=True)
    (tmp_path / "raw/a.jsonl").write_bytes(GOOD + b'{"text": " \\n "}\n{"text": "\\ud800"}\n')
    (tmp_path / "raw/sub/b.jsonl").write_bytes(b"")
    documents, report = read_all(tmp_path)
    assert [(d.text, d.path, d.offset) for d in documents] == [
        ("one", "a.jsonl", 0),
        ("two", "a.jsonl", 16),
    ]
    assert report["bad"] == {"empty text": 1, "lone surrogate": 1, "empty file": 1}
    places = [(b["path"], b["place"], b["reason"]) for b in report["bad_samples"]]
    assert places == [
        ("a.jsonl", "line 3", "empty text"),
        ("a.jsonl", "line 4", "lone surrogate"),
        ("sub/b.jsonl", "whole file", "empty file"),
    ]
    assert pq.read_table(tmp_path / "out/bad.parquet").num_rows == 3
    assert report["bad_samples"][1]["detail"] == "U+D800 at character 0 of text"


def test_ids_stay_when_files_are_added_and_directories_move(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/b.jsonl").write_bytes(GOOD)
    before, _ = read_all(tmp_path)
    (tmp_path / "raw").rename(tmp_path / "moved")
    (tmp_path / "moved/a.jsonl").write_bytes(GOOD)
    after, _ = read_all(tmp_path, root="moved")
    assert {d.id for d in before} < {d.id for d in after}
    assert len({d.id for d in after}) == 4 and len({d.content_hash for d in after}) == 2


def test_partitions_follow_file_names_and_sizes(tmp_path):
    (tmp_path / "raw").mkdir()
    for name in "cabde":
        (tmp_path / f"raw/{name}.jsonl").write_bytes(b"x" * 10)
    partitions = plan(source(), tmp_path, 20)
    names = [[i.name for i in p.inputs["files"]] for p in partitions]
    assert names == [["a.jsonl", "b.jsonl"], ["c.jsonl", "d.jsonl"], ["e.jsonl"]]
    assert [p.name for p in partitions] == ["s-00000", "s-00001", "s-00002"]


def test_hidden_files_are_read_only_when_spelled_out(tmp_path):
    (tmp_path / "raw/.git").mkdir(parents=True)
    (tmp_path / "raw/.git/a.jsonl").write_bytes(GOOD)
    (tmp_path / "raw/b.jsonl").write_bytes(GOOD)
    (partition,) = plan(source(), tmp_path, 1)
    assert [i.name for i in partition.inputs["files"]] == ["b.jsonl"]
    hidden = plan(source(paths=(".git/*.jsonl",)), tmp_path, 1)
    assert [i.name for p in hidden for i in p.inputs["files"]] == [".git/a.jsonl"]


def test_a_build_does_not_read_what_it_wrote(tmp_path):
    (tmp_path / "stages/read").mkdir(parents=True)
    (tmp_path / "stages/read/a.jsonl").write_bytes(GOOD)
    with pytest.raises(DataError, match=r"matches stages/read/a.jsonl, which the build itself wr"):
        plan(source(root="."), tmp_path, 1)


@pytest.mark.parametrize("name", ["lock", "manifest.json", "report.html", "tokenizer.model"])
def test_nor_the_files_beside_its_stages(tmp_path, name):
    (tmp_path / "a.txt").write_bytes(b"text")
    plan(source(root=".", paths=("*",), format="txt"), tmp_path, 1)
    (tmp_path / name).write_bytes(b"written by a build")
    with pytest.raises(DataError, match=f"matches {name}, which the build itself wrote"):
        plan(source(root=".", paths=("*",), format="txt"), tmp_path, 1)


def test_a_file_name_that_is_not_utf8_is_spelled_out(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / os.fsdecode(b"raw/\xff.jsonl")).write_bytes(GOOD)
    documents, _ = read_all(tmp_path)
    assert [d.path for d in documents] == ["\\xff.jsonl"] * 2


def test_a_pattern_without_a_file_is_an_error(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl").write_bytes(GOOD)
    with pytest.raises(DataError, match=r"source s: no file matches '\*\.json' below .*raw;"):
        plan(source(paths=("*.jsonl", "*.json")), tmp_path, 1)


def test_a_file_that_cannot_be_read_stops_the_build(tmp_path):
    """Counted as bad it would be committed, and not read again once its permissions are mended."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl").write_bytes(GOOD)
    (partition,) = plan(source(), tmp_path, 1)
    (tmp_path / "raw/a.jsonl").unlink()
    with pytest.raises(DataError, match=r"a\.jsonl: cannot be read \(No such file or directory\)"):
        read_partition(
            Partition("s-00000", ReadConfig(source(), WHOLE), partition.inputs), tmp_path
        )
