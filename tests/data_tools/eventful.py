"""A small corpus in which everything happens that a report tells of, some of it hostile."""

import json
from dataclasses import replace
from pathlib import Path

from data_tools.decontaminate.config import DecontaminateConfig, EvaluationConfig
from data_tools.privacy.config import PrivacyConfig
from data_tools.recipe import PackConfig, Recipe, RuleConfig
from data_tools.source import SourceConfig
from tests.data_tools import small

SITES, PAGES = 6, 8
BOILERPLATE = "Sign up for our letter and never miss a story"
SCRIPT = "<script>alert('text')</script>"
MOBILE, EMAIL, QQ = "13812345678", "li.lei@163.com", "QQ号：123456789"
QUESTION = small.english(7000, 40)

SALTED: dict[str, str] = {
    "copy": f"{small.english(1)}{small.english(2)}{BOILERPLATE}\n",  # of page 0
    "near": small.english(2, 200).replace("token", "TOKEN", 1),
    "near anchor": small.english(2, 200) + "one more.\n",
    "short": SCRIPT,
    "symbols": "→■★☎ " * 100,
    "mobile": f"{small.chinese(5000)}电话：{MOBILE}，邮箱：{EMAIL}。\n",
    "secret": f"{small.chinese(5001)}{QQ}\n",
    "contaminated": small.english(5002) + QUESTION,
    "round trip": small.english(5003) + "\u2581" + small.english(5004),
    "hostile": f"{SCRIPT}\x07\u202e</td></pre><img src=x onerror=f()>\n{small.english(5005)}",
    "all boilerplate": f"{BOILERPLATE}\n",
    "held out": small.english(28, 200).replace("token", "TOKEN", 1),
    "like held out": small.english(28, 200) + "one more.\n",
}
"""What the file salted.jsonl of the source web holds, a document a line."""


def write(workdir: Path) -> Recipe:
    """Writes the raw files; returns the recipe, which needs no workers."""
    web = workdir / "raw/web"
    for site in range(SITES):
        pages = [small.english(2 * n + 1) + small.english(2 * n + 2) for n in _pages(site)]
        lines = [
            {"text": f"{page}{BOILERPLATE}\n", "url": f"https://www.{site}.example/{n}"}
            for n, page in enumerate(pages)
        ]
        small.write_jsonl(web / f"site {site}.jsonl", lines)
    small.write_jsonl(web / "salted.jsonl", [{"text": t, "url": ""} for t in SALTED.values()])
    with (web / "salted.jsonl").open("a") as file:
        file.write('{"text": <script>\n')
    (web / "<b>cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00")
    small.write_raw(workdir, files=2, texts=10)
    small.write_jsonl(workdir / "raw/test.jsonl", [QUESTION, "too short"])
    base = small.recipe(
        rules=(
            RuleConfig("unicode_repair"),
            RuleConfig("min_length"),
            RuleConfig("symbol_ratio", {"most": 0.1}, ("web",), 1.0),
            RuleConfig("min_length", {"characters": 300}, ("web",), 0.5),
            RuleConfig("quality", {"least": 0.5}, ("web",)),
        ),
        pack=PackConfig(chunk_tokens=32, shard_bytes=20_000 * 64),
    )
    source = SourceConfig("web", "web", "jsonl", "raw/web", ("*",), meta_fields=("url",))
    others = tuple(s for s in base.sources if s.name != "en")
    return replace(
        base,
        sources=(source, *others),
        partition_bytes=10_000,
        boilerplate=replace(base.boilerplate, seeds=()),
        privacy=PrivacyConfig(qq="drop"),
        decontaminate=DecontaminateConfig(sets=(EvaluationConfig("exam", "raw/test.jsonl"),)),
    )


def _pages(site: int) -> range:
    return range(site * PAGES, (site + 1) * PAGES)


def report(workdir: Path) -> dict:
    """report.json of a build."""
    return json.loads((workdir / "report.json").read_text(encoding="utf-8"))
