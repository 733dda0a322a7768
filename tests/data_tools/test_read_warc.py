"""WARC and WET: pages with their URL, whatever is between them."""

import gzip
import random
import zlib

import pytest

from data_tools.read.record import Bad, Record
from data_tools.read.warc import site_of
from tests.data_tools.raw import bad, page, read_bytes, response, texts, warc_record

CHINESE = "今天天气很好，我们去公园散步。"


@pytest.mark.parametrize(("name", "pack"), [("a.warc", bytes), ("a.warc.gz", gzip.compress)])
class TestBoth:
    def test_pages_with_their_url_site_and_date(self, tmp_path, name, pack):
        info, first = warc_record("warcinfo", b"software: x"), response(page("one"))
        request = warc_record("request", b"GET / HTTP/1.1\r\n\r\n")
        second = response(page("two")).replace(b"http://www.a.cn/", b"https://b.cn/x")
        members = [pack(r) for r in (info, request, first, second)]
        a, b = read_bytes(tmp_path / name, b"".join(members))
        meta = {"url": "http://www.a.cn/", "site": "a.cn", "date": "2026-01-02T03:04:05Z"}
        offset = len(members[0] + members[1])
        assert a == Record("one", f"byte {offset}", offset, meta)
        assert isinstance(b, Record) and b.meta["site"] == "b.cn"
        assert b.offset == offset + len(members[2])

    def test_what_is_no_page_is_counted(self, tmp_path, name, pack):
        records = [
            response(page("gone"), status="404 Not Found"),
            response(b"\x89PNG", "image/png"),
            warc_record("response", b"not http", Content_Type="application/http"),
            response(page("good")),
        ]
        found = read_bytes(tmp_path / name, b"".join(map(pack, records)))
        assert texts(found) == ["good"]
        assert [(b.reason, b.detail) for b in found if isinstance(b, Bad)] == [
            ("HTTP status is not 200", "404"),
            ("neither HTML nor plain text", "image/png"),
            ("HTTP status is not 200", "None"),
        ]

    def test_wet_text_is_as_it_is(self, tmp_path, name, pack):
        block = "第一行\n\n  第二行\n".encode()
        record = warc_record("conversion", block, Content_Type="text/plain")
        (found,) = read_bytes(tmp_path / name.replace("warc", "wet"), pack(record))
        assert isinstance(found, Record) and found.text == block.decode()

    def test_a_damaged_record_loses_itself_alone(self, tmp_path, name, pack):
        members = [pack(response(page(f"p{i} " + "words " * 50))) for i in range(6)]
        members[2] = members[2][: len(members[2]) // 2]
        found = read_bytes(tmp_path / name, b"".join(members))
        assert [t[:2] for t in texts(found)] == ["p0", "p1", "p3", "p4", "p5"]
        assert [place for place, _ in bad(found)] == [f"byte {len(members[0] + members[1])}"]

    def test_cut_at_the_end(self, tmp_path, name, pack):
        data = b"".join(pack(response(page(f"p{i} " + "words " * 50))) for i in range(3))
        found = read_bytes(tmp_path / name, data[:-100])
        assert len(texts(found)) == 2
        (reason,) = [reason for _, reason in bad(found)]
        assert reason in ("WARC record is cut", "compressed file is cut")

    def test_not_an_archive(self, tmp_path, name, pack):
        assert bad(read_bytes(tmp_path / name, b"")) == [("whole file", "empty file")]
        found = read_bytes(tmp_path / name, pack(b"hello\nworld\n"))
        assert bad(found) == [("byte 0", "not a WARC record")]


@pytest.mark.parametrize(
    ("body", "more", "kind"),
    [
        (page(CHINESE).decode().encode("gb18030"), "", "text/html; charset=gb2312"),
        (gzip.compress(page(CHINESE), mtime=0), "Content-Encoding: gzip\r\n", "text/html"),
        (zlib.compress(page(CHINESE)), "Content-Encoding: deflate\r\n", "application/xhtml+xml"),
        (
            b"5\r\n<p>ab\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(CHINESE.encode()), CHINESE.encode()),
            "Transfer-Encoding: chunked\r\n",
            "text/html",
        ),
        (CHINESE.encode("gb18030"), "", "text/plain; charset=gbk"),
    ],
)
def test_a_body_is_decoded_as_its_headers_say(tmp_path, body, more, kind):
    (found,) = read_bytes(tmp_path / "a.warc", response(body, kind, more=more))
    assert isinstance(found, Record) and found.text.endswith(CHINESE)


def test_a_body_that_unpacks_to_too_much(tmp_path):
    body = gzip.compress(bytes(1 << 24))
    record = response(body, more="Content-Encoding: gzip\r\n")
    found = read_bytes(tmp_path / "a.warc", record + response(page("x")), max_record_bytes=1 << 20)
    assert bad(found) == [("byte 0", "record too long")] and texts(found) == ["x"]
    found = read_bytes(tmp_path / "a.warc", response(b"no gzip", more="Content-Encoding: gzip\r\n"))
    assert bad(found) == [("byte 0", "broken WARC record")]


def test_several_records_in_one_member(tmp_path):
    """A whole archive compressed as one stream; offsets stay distinct."""
    data = gzip.compress(b"".join(response(page(f"p{i}")) for i in range(4)))
    found = read_bytes(tmp_path / "a.warc.gz", data)
    assert [(f.place, f.offset) for f in found] == [
        ("byte 0", 0),
        ("byte 0, record 2", 1),
        ("byte 0, record 3", 2),
        ("byte 0, record 4", 3),
    ]


def test_a_length_that_is_wrong(tmp_path):
    records = [response(page(f"p{i}")) for i in range(4)]
    length = records[1].split(b"Content-Length: ")[1].split(b"\r\n")[0]
    for wrong in (b"5", b"99999999", b"x", b"-3", str(int(length) + 40).encode()):
        broken = records[1].replace(b"Content-Length: " + length, b"Content-Length: " + wrong)
        data = records[0] + broken + records[2] + records[3]
        found = read_bytes(tmp_path / "a.warc", data)
        assert texts(found) == ["p0", "p2", "p3"] and len(bad(found)) == 1


def test_random_bytes_between_members(tmp_path):
    noise = random.Random(0).randbytes(3000) + b"\x1f\x8b\x08\x00"
    data = gzip.compress(response(page("a"))) + noise + gzip.compress(response(page("b")))
    found = read_bytes(tmp_path / "a.warc.gz", data)
    assert texts(found) == ["a", "b"] and bad(found)[0][1] == "damaged compressed file"


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("http://www.A.com.cn:80/x", "a.com.cn"),
        ("https://blog.b.cn", "blog.b.cn"),
        ("dns:x", ""),
        ("http://[bad/", ""),
    ],
)
def test_site(url, site):
    assert site_of(url) == site
