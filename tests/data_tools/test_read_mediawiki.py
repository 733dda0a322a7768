"""MediaWiki dumps: articles as plain text; what is no article stays out."""

import bz2
import gzip

import pytest

from data_tools.read.record import Record
from data_tools.read.wikitext import plain_text
from tests.data_tools.raw import HEAD, TAIL, bad, read_bytes, texts, wiki_page


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + TAIL).encode()


@pytest.mark.parametrize(
    ("name", "pack"), [("a.xml", bytes), ("a.xml.bz2", bz2.compress), ("a.xml.gz", gzip.compress)]
)
def test_articles_alone(tmp_path, name, pack):
    data = dump(
        wiki_page(1, "讨论", "talk", space=1),
        wiki_page(7, "北京", "'''北京'''是[[中国|中华人民共和国]]的首都。\nA &amp; B < C"),
        wiki_page(8, "京", "#重定向 [[北京]]", more='    <redirect title="北京" />\n'),
    )
    (found,) = read_bytes(tmp_path / name, pack(data))
    text = "北京是中华人民共和国的首都。\nA & B < C"
    assert found == Record(text, "page 7", 7, {"title": "北京"})


def test_of_several_revisions_the_last(tmp_path):
    page = wiki_page(1, "T", "old")
    new = "    <revision>\n<id>5</id><text>new</text></revision>\n  </page>"
    found = read_bytes(tmp_path / "a.xml", dump(page.replace("  </page>", new)))
    assert texts(found) == ["new"]


def test_bad_pages_lose_themselves_alone(tmp_path):
    good = [wiki_page(i, f"T{i}", f"text {i}") for i in range(1, 5)]
    unended = "  <page>\n<title>x</title>\n"
    no_id = wiki_page(9, "x", "y").replace("<id>9</id>", "")
    huge_id = wiki_page(9, "x", "y").replace("<id>9</id>", f"<id>{10**30}</id>")
    control = wiki_page(9, "x", "a\x01b")
    data = dump(good[0], unended, good[1], no_id, huge_id, good[2], control, good[3])
    found = read_bytes(tmp_path / "a.xml", data)
    assert texts(found) == ["text 1", "text 2", "text 3", "text 4"]
    no_page = ["page without an id or a text"] * 2
    reasons = ["page without an end", *no_page, "broken XML"]
    assert [reason for _, reason in bad(found)] == reasons
    place = int(bad(found)[0][0].removeprefix("byte "))
    assert data[place:].startswith(b"<page>\n<title>x")


def test_a_dump_without_pages_and_one_that_is_cut(tmp_path):
    assert bad(read_bytes(tmp_path / "a.xml", b"")) == [("whole file", "no <page> in it")]
    data = dump(wiki_page(1, "T", "one"), wiki_page(2, "T", "two"))
    found = read_bytes(tmp_path / "a.xml", data[:-60])
    assert texts(found) == ["one"]
    assert [reason for _, reason in bad(found)] == ["page without an end"]


def test_a_damaged_stream_loses_itself_alone(tmp_path):
    streams = [bz2.compress(wiki_page(i, "T", f"text {i}").encode()) for i in range(1, 5)]
    streams[1] = streams[1][:30] + b"\x00\x01" + streams[1][32:]
    found = read_bytes(tmp_path / "a.xml.bz2", bz2.compress(HEAD.encode()) + b"".join(streams))
    assert texts(found) == ["text 1", "text 3", "text 4"]
    start = len(bz2.compress(HEAD.encode()) + streams[0])
    assert bad(found) == [(f"stream at byte {start}", "damaged compressed file")]


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("a{{t|x={{u|v}}|y}}b", "ab"),
        ("a<ref name=x>{{cite}} [[y]]</ref>b<ref name=x />c", "abc"),
        ("a<!-- {{ -->b", "ab"),
        ("[[a]] [[b|c]] [[:Category:D|E]]", "a c E"),
        ("x[[File:a.jpg|thumb|a [[link]] in it]]y[[文件:b.png]]z", "xyz"),
        ("x[[Category:Y]][[de:Z]][[分类:城市]]", "x"),
        ("[[Dune: Part Two]] and [[HTTP:x|y]]", "Dune: Part Two and y"),
        ("see [http://a.cn/x the site], [http://b.cn]", "see the site,"),
        ("'''''a''' b'' c", "a b c"),
        ("a<br/>b&nbsp;c <b>d</b> __NOTOC__", "a\nb c d"),
        ("* a\n*# b\n: c", "a\nb\nc"),
        ("a\n{| class=x\n! h\n|-\n| {{t|}} || [[x|y]]\n{|\n| inner\n|}\n|}\nb", "a\n\nb"),
        (
            "== H ==\n=== I ===\ntext\n== Empty ==\n== J ==\nmore\n== References ==\n{{reflist}}",
            "H\n\nI\ntext\n\nJ\nmore",
        ),
        ("-{zh-hans:计算机;zh-hant:電腦}-和-{字}--{T|zh:x}-", "计算机和字"),
        ("北京（{{lang|en|Beijing}}，）市", "北京市"),
        ("a {{ unclosed [[ text", "a  unclosed  text"),
        ("a }} b ]] c |} d", "a  b  c |} d"),
        ("{{a|[[b}} c", "c"),
        ("a<math>\\frac{{1}}{2}</math>b", "ab"),
    ],
)
def test_wikitext(wikitext, text):
    assert plain_text(wikitext) == text


@pytest.mark.parametrize(
    "piece",
    ["{{", "[[", "<ref>", "\n{|", "[[x ", "{{a|[[b|", "[//", "= a ", "-{", "(", "''", "<", "&amp"],
)
def test_wikitext_that_never_ends_takes_no_longer(piece):
    """A million characters of it, within the test's own patience: quadratic would be hours."""
    plain_text(piece * (300_000 // len(piece)) + "]]" * 1000)
