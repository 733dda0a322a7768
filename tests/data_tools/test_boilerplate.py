"""Boilerplate: lines of many documents and sites go, from where they are that, and nothing else."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_tools.boilerplate import count, decide
from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.boilerplate.find import find
from data_tools.boilerplate.line import normal_form
from data_tools.boilerplate.remove import Boilerplate, remove
from data_tools.boilerplate.site import site_of
from data_tools.document import Document, Drop, read_tables, table_writer
from data_tools.drops import VERDICTS
from data_tools.engines import InProcess
from data_tools.source import SourceConfig
from data_tools.stage import Input, Partition, Stage, StageResult, run_stage
from jaxlm.schema import ConfigError, parse
from tests.data_tools import small
from tests.data_tools.small import HAN, write_jsonl

CONFIG = BoilerplateConfig(documents=6, sites=3, site_documents=4, site_share=0.5, buckets=4)


def page(text: str, n: int = 0, site: str = "a.cn", type: str = "web") -> Document:
    return Document.make(text, "web", type, "f.jsonl", n, {"url": f"https://{site}/{n}"})


def sentence(seed: object, length: int = 30) -> str:
    return "".join(random.Random(f"{seed}").choices(HAN, k=length)) + "。"


class Corpus:
    """Documents in partitions on disk, what is found there, and what removal leaves."""

    def __init__(
        self, root: Path, parts: Sequence[Sequence[Document]], copies: set[bytes] = frozenset()
    ):
        self._root = root
        self._documents = {f"web-{i:05d}": part for i, part in enumerate(parts)}
        self._inputs = [(n, self._write(n, copies)) for n in self._documents]

    def _write(self, name: str, copies: set[bytes]) -> dict[str, tuple[Input, ...]]:
        (self._root / name).mkdir(parents=True)
        files = {role: self._root / name / f"{role}.parquet" for role in ("documents", "verdicts")}
        with table_writer(files["documents"]) as write:
            for document in self._documents[name]:
                write(document)
        gone = [d.id for d in self._documents[name] if d.id in copies]
        columns = [gone, ["exact_duplicate"] * len(gone), ["copy"] * len(gone)]
        pq.write_table(pa.table(columns, VERDICTS), files["verdicts"])
        return {role: (Input(f, name, str(f.stat().st_mtime_ns)),) for role, f in files.items()}

    def run(self, stage: Stage, partitions: Sequence[Partition]) -> StageResult:
        return run_stage(stage, partitions, self._root / stage.name, InProcess())

    def find(self, config: BoilerplateConfig) -> StageResult:
        return find(self.run, self._inputs, config)

    def lines(self, config: BoilerplateConfig) -> list[dict]:
        """The lines found, of all buckets."""
        files = [i for c in self.find(config).commits for i in c.input("lines.parquet")]
        return sorted(
            (row for f in files for row in pq.read_table(f.path).to_pylist()),
            key=lambda row: (-row["documents"], row["text"]),
        )

    def cleaned(self, config: BoilerplateConfig) -> dict[bytes, tuple[Document | Drop, int]]:
        """Id -> what removal gives."""
        found = self.find(config)
        result = {}
        for name, documents in self._documents.items():
            boilerplate = Boilerplate(config.removal, found.about(name))
            result |= {d.id: boilerplate(d) for d in documents}
        return result


def text_of(cleaned: tuple[Document | Drop, int]) -> str:
    assert isinstance(cleaned[0], Document), cleaned[0]
    return cleaned[0].text


# ---- lines and sites -----------------------------------------------------------------------------


def test_variants_of_a_line_have_one_normal_form():
    assert (
        normal_form("  第 ３ 页　共 120 页\r\n")
        == "第 0 页 共 0 页"
        == normal_form("第 7 页\t共 9 页")
    )
    assert normal_form("READ\u00a0More…\n") == normal_form("read more...")
    assert normal_form("第三章") != normal_form("第四章")
    assert normal_form(" \t\u3000\r\n") == ""


def test_the_site_is_said_or_in_the_address_or_the_directory():
    def site(meta: dict[str, str], path: str = "crawl/a/1.jsonl") -> str:
        return site_of(Document.make("text", "src", "web", path, 0, meta))

    assert site({"site": "example", "url": "http://b.cn"}) == "example"
    assert site({"url": "https://WWW.Example.com:8080/a/b"}) == "example.com"
    assert site({}) == site({"url": "no address"}) == site({"url": "http://[x"}) == "src:crawl/a"
    assert site({}, "1.jsonl") == "src:."


# ---- removal -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left", "removed"),
    [
        ("a\nNAV\nb\n", "a\nb\n", 1),
        ("a\n\nNAV\n\nb\n", "a\n\nb\n", 1),  # one gap between paragraphs, as it was
        ("a\n\nNAV\n\n\nNAV\nb\n", "a\n\nb\n", 2),
        ("a\nNAV\n\n\nb\n", "a\n\n\nb\n", 1),
        ("a\n \t\n\nNAV\n\nb", "a\n \t\n\nb", 1),
        ("NAV\n\na\n\nNAV", "a", 2),  # it ends with a newline if it did
        ("a\n\nNAV\n", "a\n", 1),
        ("\n\nNAV\n\na\r\n\r\nNAV\r\n\r\nb\r\n", "a\r\n\r\nb\r\n", 2),
        ("\n\n a NAV \n\n\n", "\n\n a NAV \n\n\n", 0),  # nothing is removed: nothing changes
        ("a\x0bNAV\u2028b\x0c\nb", "a\x0bNAV\u2028b\x0c\nb", 0),  # only a newline ends a line
        ("NAV\n\nNAV\n", "", 2),
        ("", "", 0),
    ],
)
def test_a_line_goes_and_the_text_around_stays(text, left, removed):
    assert remove(text, lambda normal: normal == "nav", 200) == (left, removed)


def test_a_long_line_is_a_paragraph():
    assert remove("x" * 11 + "\n", lambda _: True, 11) == ("x" * 11 + "\n", 0)
    assert remove("x" * 10 + "\n", lambda _: True, 11) == ("", 1)


def test_a_document_of_nothing_else_is_dropped():
    boilerplate = Boilerplate(CONFIG.removal, ())
    assert boilerplate(page("暂无评论\n\n分享到：微信 微博\n")) == (
        Drop("boilerplate", "2 lines of boilerplate and no others"),
        2,
    )
    whole = page("一句话。\n")
    assert boilerplate(whole) == (whole, 0)


SEEDED = """点击查看更多>>
阅读全文
Read more...
Click here to read more
上一页 下一页
首页 | 上一页 | 1 2 3 4 … 12 | 下一页 | 尾页
« Previous Page · Next Page »
Prev 1 2 3 Next
第 3 页 / 共 18 页
共 25 条记录
Page 2 of 7
分享到：微信 微博 QQ空间
Share this: Facebook | Twitter | Email
Share
返回顶部
Skip to main content
登录 | 注册
您现在的位置：首页 > 新闻 > 国内
版权所有 © 2004-2021 某某网 未经许可不得转载
Copyright © 2020 Example, Inc. All rights reserved.
京ICP备12345678号-1
京ICP备12345678号 京公网安备 11010502030000号
We use cookies to give you the best experience on our website.
This website uses cookies.
By continuing to use this site you agree to our use of cookies.
Accept All Cookies
扫描二维码关注我们的公众号
暂无评论
Please enable JavaScript to view the comments.""".splitlines()

SENTENCES = """点击查看更多的用户会看到同样的页面。
他翻到第 3 页，看见自己的名字。
上一页写的是昨天的事。
目录
1 2 3 4
(0, 0)
next
Share prices fell on Monday as investors waited for the bank.
版权所有者有权禁止他人复制。她说，这是法律。
Read more books, he said, and fewer screens.
We used cookies and milk to bribe the children.
The cookies were accepted by all.
分享到家的路上，他一直在想这件事。
登录系统之后，管理员可以修改密码。
Copyright law protects the author, not the reader.
暂无证据表明两者有关。
| Page | Title |""".splitlines()


@pytest.mark.parametrize("line", SEEDED)
def test_a_seed_goes_however_rare(line):
    result = Boilerplate(CONFIG.removal, ())(page(f"正文。\n\n{line}\n\n正文。"))
    assert text_of(result) == "正文。\n\n正文。" and result[1] == 1


def test_sentences_are_no_seeds():
    whole = page("\n".join(SENTENCES))
    assert Boilerplate(CONFIG.removal, ())(whole) == (whole, 0)


def test_without_seeds_nothing_is_a_seed():
    whole = page("\n".join(SEEDED))
    assert Boilerplate(replace(CONFIG, seeds=()).removal, ())(whole) == (whole, 0)


# ---- what is found -------------------------------------------------------------------------------


def salted() -> tuple[list[Document], dict[bytes, str]]:
    """(Pages of 8 sites with boilerplate between their paragraphs, id -> the text without it)."""
    rng = random.Random("salt")
    documents, clean = [], {}
    for n in range(160):
        site = "甲乙丙丁戊己庚辛"[n % 8]
        paragraphs = [sentence((n, k)) for k in range(4)]
        if n % 5 == 0:  # 32 documents, 4 of each site
            paragraphs[1] = "他说：好的。"
        mixed = list(paragraphs)
        for line in [f"热点 | 要闻 | 第 {n} 期", f"{site}站频道导航", "下载客户端，看更多"][
            : 1 + n % 3
        ]:
            mixed.insert(rng.randrange(len(mixed) + 1), line)
        documents.append(page("\n\n".join(mixed) + "\n", n, site))
        clean[documents[-1].id] = "\n\n".join(paragraphs) + "\n"
    return documents, clean


SALTED = replace(CONFIG, documents=40, site_documents=8)


def test_a_salted_corpus_comes_out_without_its_salt(tmp_path):
    documents, clean = salted()
    corpus = Corpus(tmp_path, [documents[:70], documents[70:]])
    cleaned = corpus.cleaned(SALTED)
    assert {id: text_of(result) for id, result in cleaned.items()} == clean
    assert sum(removed for _, removed in cleaned.values()) == 160 + 106 + 53
    everywhere, here = corpus.lines(SALTED)[:2], corpus.lines(SALTED)[2:]
    assert [(x["text"], x["documents"], x["sites"], x["everywhere"]) for x in everywhere] == [
        ("热点 | 要闻 | 第 0 期", 160, 8, True),
        ("下载客户端,看更多", 53, 8, True),
    ]
    assert sorted(x["text"] for x in here) == sorted(f"{s}站频道导航" for s in "甲乙丙丁戊己庚辛")
    assert all(x["sites"] == 1 and not x["everywhere"] for x in here)
    assert all(x["text"].startswith(x["top_site"]) for x in here)
    assert sum(x["documents"] for x in here) == 106


def naive(documents: Sequence[Document], config: BoilerplateConfig) -> dict[str, tuple]:
    """Normal form -> (documents, sites, everywhere, sites that it goes from), counted plainly."""
    total, found = defaultdict(int), defaultdict(lambda: defaultdict(int))
    for d in documents:
        total[site_of(d)] += 1
        for line in {normal_form(x) for x in d.text.split("\n")} - {""}:
            found[line][site_of(d)] += 1
    result = {}
    for line, sites in found.items():
        count = sum(sites.values())
        everywhere = count >= config.documents and len(sites) >= config.sites
        share = {
            s
            for s, n in sites.items()
            if n >= config.site_documents and n >= config.site_share * total[s]
        }
        if everywhere or share:
            result[line] = (count, len(sites), everywhere, set() if everywhere else share)
    return result


def random_corpus(seed: int) -> list[Document]:
    """Pages of lines that are drawn from few and many, of sites of all sizes."""
    rng = random.Random(seed)
    documents = []
    for n in range(300):
        site = f"{'abcdefghij'[min(int(rng.expovariate(0.5)), 9)]}.cn"
        lines = [sentence(min(int(rng.paretovariate(0.4)), 10**6), 8) for _ in range(6)]
        lines += [f"{site[0]} 站第 {n} 页"] * rng.randrange(3) + [
            sentence((site, n % 3), 9),
            sentence(n),
        ]
        documents.append(page("\n".join(lines), n, site))
    return documents


@pytest.mark.parametrize(("parts", "buckets", "rows"), [(1, 1, 1 << 21), (1, 3, 100), (7, 16, 50)])
def test_it_finds_what_plain_counting_finds_however_it_is_cut(
    tmp_path, monkeypatch, parts, buckets, rows
):
    monkeypatch.setattr(count, "LINES_AT_ONCE", rows)
    monkeypatch.setattr(decide, "ROWS_AT_ONCE", rows)
    documents = random_corpus(7)
    config = replace(CONFIG, buckets=buckets, documents=12, site_share=0.3, longest=40, seeds=())
    expected = naive(documents, config)
    assert {e for _, _, e, _ in expected.values()} == {True, False} and len(expected) > 20
    corpus = Corpus(tmp_path, [documents[i::parts] for i in range(parts)])
    lines = corpus.lines(config)
    assert {x["text"]: (x["documents"], x["sites"], x["everywhere"]) for x in lines} == {
        line: found[:3] for line, found in expected.items()
    }
    cleaned = corpus.cleaned(config)
    for d in documents:
        left = []
        for line in d.text.split("\n"):
            _, _, everywhere, here = expected.get(normal_form(line), (0, 0, False, set()))
            if not everywhere and site_of(d) not in here:
                left.append(line)
        assert text_of(cleaned[d.id]) == "\n".join(left)


def test_copies_and_refrains_do_not_count(tmp_path):
    refrain = page("\n".join([sentence("refrain")] * 50 + [sentence("end")]))
    copied = [page(sentence("copied"), n, f"{'abcdefgh'[n % 8]}.cn") for n in range(1, 40)]
    gone = {d.id for d in copied[1:]}
    corpus = Corpus(tmp_path, [[refrain, *copied]], gone)
    assert corpus.lines(CONFIG) == []
    assert text_of(corpus.cleaned(CONFIG)[refrain.id]) == refrain.text
    counted = Corpus(tmp_path / "again", [[refrain, *copied]])
    assert [x["documents"] for x in counted.lines(CONFIG)] == [39]


def test_what_has_no_letter_or_is_too_short_or_long_is_not_counted(tmp_path):
    lines = [
        "}",
        "---",
        "12:30",
        "```python",
        ".. code-block:: python",
        "第",
        "很长的一段" * 9,
        "一二",
    ]
    documents = [
        page("\n".join([*lines, sentence(n)]), n, f"{'abcd'[n % 4]}.cn") for n in range(20)
    ]
    corpus = Corpus(tmp_path, [documents])
    assert [x["text"] for x in corpus.lines(replace(CONFIG, longest=40))] == ["一二"]


def test_a_line_of_one_site_stays_on_the_others(tmp_path):
    line = "本站公告"
    documents = [page(f"{line}\n{sentence(n)}", n, "a.cn") for n in range(10)]
    documents += [page(f"{sentence(n)}\n{line}", n, "b.cn") for n in range(10, 13)]
    cleaned = Corpus(tmp_path, [documents]).cleaned(CONFIG)
    assert [line in text_of(cleaned[d.id]) for d in documents] == [False] * 10 + [True] * 3


def test_new_thresholds_do_not_count_again(tmp_path):
    documents, _ = salted()
    corpus = Corpus(tmp_path, [documents])
    assert len(corpus.find(SALTED).ran) == 4
    first = {c.partition: c.outputs for c in corpus.find(SALTED).commits}
    stage = next(p for p in tmp_path.iterdir() if p.name == "boilerplate_counts")
    before = (stage / "web-00000/commit.json").stat().st_mtime_ns
    again = corpus.find(replace(SALTED, documents=41, seeds=()))
    assert len(again.ran) == 4 and {c.partition: c.outputs for c in again.commits} == first
    assert (stage / "web-00000/commit.json").stat().st_mtime_ns == before


def test_code_dialogue_and_poetry_are_exempt(tmp_path):
    """One and the same lines, in documents enough of sites enough, go from web pages alone."""
    lines = ["def main():", "}", "## Installation", "好的。", "版权所有 © 2020", "举头望明月"]
    rng = random.Random("exempt")
    for kind in ("web", "code", "dialogue", "poetry"):
        texts = []
        for n in range(12):
            mixed = [*lines, sentence((kind, n, 0)), sentence((kind, n, 1))]
            rng.shuffle(mixed)
            texts.append({"text": "\n".join(mixed), "url": f"https://{'abc'[n % 3]}.cn/{n}"})
        write_jsonl(tmp_path / f"raw/{kind}.jsonl", texts)
    kinds = ("web", "code", "dialogue", "poetry")
    sources = [SourceConfig(k, k, "jsonl", "raw", (f"{k}.jsonl",)) for k in kinds]
    recipe = replace(
        small.recipe(),
        sources=tuple(replace(s, meta_fields=("url",)) for s in sources),
        rules=(),
        boilerplate=CONFIG,
    )
    work = small.run(recipe, tmp_path, last="clean")
    left = defaultdict(list)
    for commit in work.results["clean"].commits:
        for d in read_tables(i.path for i in commit.input("documents.parquet")):
            left[d.type] += d.text.split("\n")
    for kind in ("code", "dialogue", "poetry"):
        assert all(left[kind].count(line) == 12 for line in lines), kind
    assert [line for line in lines if line in left["web"]] == ["}"]
    assert len(left["web"]) == 12 * 3


# ---- the config ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"documents": 1}, "documents=1 must be at least 2; in one document alone no line is"),
        ({"site_documents": 0}, "site_documents=0 must be at least 2"),
        ({"buckets": 0}, "buckets=0 must be at least 1"),
        ({"longest": 1}, "longest=1 must be at least shortest=2"),
        ({"site_share": 1.5}, "site_share=1.5 must be above 0 and at most 1"),
        ({"seeds": ("上一页(",)}, r"seeds: '上一页\(' is no regular expression .*re.escape"),
    ],
)
def test_a_value_that_cannot_be_is_named(values, message):
    with pytest.raises(ConfigError, match=f"config: {message}"):
        parse(BoilerplateConfig, values)
