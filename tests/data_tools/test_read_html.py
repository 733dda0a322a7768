"""Charsets and main text: what the bytes say goes before what is said of them."""

import codecs

import pytest

from data_tools.read.charset import decode, decode_page, detect
from data_tools.read.html import DEPTH, OPTIONS, main_text, page_text
from data_tools.read.record import Bad, Record
from tests.data_tools.raw import bad, page, read_bytes, texts

SIMPLIFIED = "今天天气很好，我们去公园散步。孩子们在草地上玩耍，老人们在树下下棋聊天。"
TRADITIONAL = "今天天氣很好，我們去公園散步。孩子們在草地上玩耍，老人們在樹下下棋聊天。"


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        (SIMPLIFIED, "gb18030"),
        (TRADITIONAL, "big5"),
        (SIMPLIFIED, "utf-8"),
        (SIMPLIFIED, "utf-16"),
        ("今日は天気がいいですから、散歩しましょう。", "shift_jis"),
        ("Сегодня хорошая погода, пойдём гулять в парк.", "cp1251"),
    ],
)
def test_the_charset_of_bytes_is_found(tmp_path, text, charset):
    data = text.encode(charset)
    assert decode(data, "auto") == text
    assert decode_page(page("").replace(b"<p>", b"<p>" + data) if charset != "utf-16" else data)
    assert texts(read_bytes(tmp_path / "a.txt", data, encoding="auto")) == [text]


def test_an_encoding_that_is_named_is_strict(tmp_path):
    data = TRADITIONAL.encode("big5")
    assert texts(read_bytes(tmp_path / "a.txt", data, encoding="big5")) == [TRADITIONAL]
    found = read_bytes(tmp_path / "a.txt", b"ok\n" + data, encoding="utf-8")
    assert found == [Bad("line 2", "not utf-8", "byte 0xa4 at 3")]
    line = '{"text": "' + SIMPLIFIED + '"}\n'
    found = read_bytes(
        tmp_path / "a.jsonl", line.encode("gb18030") + line.encode(), encoding="auto"
    )
    assert texts(found) == [SIMPLIFIED] * 2, "each line for itself"


def test_bytes_of_no_charset(tmp_path):
    data = SIMPLIFIED.encode("gb18030") + bytes([0xFF, 0xFF]) + b"\x80" * 3
    found = read_bytes(tmp_path / "a.txt", data, encoding="auto")
    assert bad(found) == [("line 1", "charset not found")]
    assert detect(b"\xef\xbb\xbfabc") == "utf-8-sig" and decode(b"\xef\xbb\xbfa", "auto") == "a"


def test_utf8_that_is_valid_goes_before_what_a_server_says():
    assert decode_page(SIMPLIFIED.encode(), "gbk") == SIMPLIFIED
    declared = b"<meta charset='iso-8859-1'>" + SIMPLIFIED.encode()
    assert decode_page(declared) == declared.decode()


def test_then_the_server_then_the_page_itself():
    data = TRADITIONAL[:4].encode("big5")
    assert decode_page(data, "big5") == TRADITIONAL[:4]
    head = b'<meta http-equiv="Content-Type" content="text/html; charset=Big5">'
    assert decode_page(head + data, "no-such-charset") == head.decode() + TRADITIONAL[:4]
    assert decode_page(b"<?xml version='1.0' encoding='gb2312'?>" + "㐀中".encode("gb18030")[4:])
    mark = codecs.BOM_UTF16_LE + SIMPLIFIED.encode("utf-16-le")
    assert (decode_page(mark, "utf-8") or "").endswith(SIMPLIFIED)


def test_a_page_may_be_broken_in_a_few_places_or_cut_in_a_character():
    data = (SIMPLIFIED * 5).encode("gb18030")
    broken = data[:40] + b"\xff" + data[40:]
    text = decode_page(broken, "gbk")
    assert text is not None and text.count("\ufffd") == 1 and text.endswith(SIMPLIFIED)
    cut = decode_page((SIMPLIFIED * 5).encode()[:-1])
    assert cut == (SIMPLIFIED * 5)[:-1], "no U+FFFD for the cut"


MENU = "<ul><li><a href='/a'>栏目一</a></li><li><a href='/b'>栏目二</a></li></ul>"
ARTICLE = f"""<html><head><title>t</title><style>p {{}}</style></head><body><nav>{MENU}</nav>
<main><h1>标题</h1><p>{SIMPLIFIED}</p>
<ul><li>第一条写的是文字</li><li>第二条<a href='x'>也是</a></li></ul>
<pre>x = 1
  y = 2</pre><p>{TRADITIONAL}</p></main>
<footer>版权所有</footer><script>var a;</script></body></html>"""


def test_main_text_keeps_paragraphs_lists_and_code_and_leaves_the_rest():
    lines = [line.strip() for line in main_text(ARTICLE).splitlines() if line.strip()]
    assert lines[:5] == ["标题", SIMPLIFIED, "第一条写的是文字", "第二条也是", "x = 1"]
    assert "  y = 2" in main_text(ARTICLE) and lines[-1] == TRADITIONAL
    assert not any(word in main_text(ARTICLE) for word in ("栏目", "版权", "var"))


def test_a_file_is_a_page(tmp_path):
    found = read_bytes(tmp_path / "a.html", ARTICLE.encode("gb18030"))
    assert found == [Record(main_text(ARTICLE), "whole file", 0)]
    assert bad(read_bytes(tmp_path / "b.html", b"")) == [("whole file", "empty file")]


@pytest.mark.parametrize(
    ("html", "detail"),
    [
        ("<div>" * 6000, f"6000 elements inside one another, at most {DEPTH}"),
        ("<select>" + "<option>x" * 6000, f"6000 options, at most {OPTIONS}"),
    ],
)
def test_a_page_that_would_take_minutes_is_bad(html, detail):
    assert page_text(html.encode(), "p") == Bad(
        "p", "HTML too deep or with too many options", detail
    )


def test_many_elements_beside_one_another_are_no_depth():
    text = page_text(b"<p>a<br>b<img><input>" + b"<div>line</div>" * 6000, "p")
    assert isinstance(text, str) and text.count("line") == 6000
