"""What is put into real text to be found again: lines of boilerplate, personal data, mojibake."""

import random
from typing import NamedTuple

from bench import values

SITES = 40
COMMON_LINES = (
    "点击查看更多",
    "分享到：微信 微博 QQ空间",
    "上一页 1 2 3 4 5 下一页",
    "本网站使用 Cookie，继续浏览即表示您同意我们的使用条款。",
    "免责声明：本文仅代表作者个人观点，与本站无关。",
    "We use cookies to improve your experience. Accept all cookies",
    "Share on Facebook | Share on Twitter | Print this page",
    "Sign up for our weekly newsletter and never miss a story",
    "您还没有登录，请先登录后再发表评论",
    "关注官方公众号，第一时间获取最新资讯",
)
"""On pages of every site."""
SITE_LINES = (
    "首页 > {0}频道 > 正文内容页",
    "{0}网编辑部联系方式与投稿须知",
    "The {1} editors welcome your letters and corrections",
    "{0}网手机客户端扫码下载安装",
)
"""On the pages of one site: {0} and {1} are its names."""
NAMES = (
    "青山碧水长河落日东湖西岭南桥北斗金陵银川云海松涛竹林梅园兰亭菊苑春晓夏荷秋月冬雪"
    "晨光暮色星河沧浪古城新港江口海岸平原高原雁门凤凰龙泉虎丘鹿鸣鹤舞石林玉门桃源杏坛"
)
"""Two characters a site."""


class Site(NamedTuple):
    """A web site that does not exist."""

    host: str
    lines: tuple[str, ...]
    """Boilerplate of its own."""


def sites() -> list[Site]:
    """`SITES` sites."""
    names = [NAMES[i : i + 2] for i in range(0, 2 * SITES, 2)]
    return [
        Site(
            f"news{number:02d}.example.cn",
            tuple(line.format(name, f"Site {number:02d} Daily") for line in SITE_LINES),
        )
        for number, name in enumerate(names)
    ]


def with_lines(text: str, site: Site, rng: random.Random) -> tuple[str, list[str]]:
    """The text with lines of boilerplate above, below and between its own, and those lines."""
    lines = text.split("\n")
    inserted = [line for line in site.lines if rng.random() < 0.8]
    inserted += [line for line in COMMON_LINES if rng.random() < 0.3]
    for line in inserted:
        at = rng.choice((0, len(lines), rng.randrange(len(lines) + 1)))
        lines.insert(at, line)
    return "\n".join(lines), inserted


class Value(NamedTuple):
    """An entity of personal data."""

    type: str
    value: str
    after: str
    """What follows it in its sentence."""


SENTENCES = (
    ("报名者的身份证号码是{}，请核对后再提交。", "resident_id", values.resident_id),
    ("有意者请致电{}与我们联系，谢谢大家。", "mobile", values.mobile),
    (" Please write to {} before the end of the month.", "email", values.email),
    ("退款已转入您的银行卡{}，请注意查收。", "bank_card", values.union_pay),
    ("我的QQ号：{}，欢迎加我好友。", "qq", values.qq),
    ("服务器 {} 已经恢复访问。", "ip", values.ipv4),
    ("车牌号{}的车主请尽快挪车。", "plate", values.plate),
)


def with_personal(text: str, rng: random.Random) -> tuple[str, list[Value]]:
    """The text with a sentence for each type of value at the end of a line of its own.

    Not on lines by themselves: they would differ in numbers only, and be boilerplate.
    """
    lines = text.split("\n")
    found = []
    for sentence, kind, make in SENTENCES:
        value = make(rng)
        at = max(rng.sample(range(len(lines)), min(3, len(lines))), key=lambda n: len(lines[n]))
        lines[at] += sentence.format(value)
        found.append(Value(kind, value, sentence.partition("{}")[2]))
    return "\n".join(lines), found


# Bytes that Windows-1252 leaves undefined stand for themselves, as in browsers.
_CP1252 = {b: bytes([b]).decode("cp1252", errors="ignore") or chr(b) for b in range(256)}


def mojibake(text: str, encoding: str) -> str:
    """UTF-8 that was read as another encoding: cp1252, latin-1 or gbk."""
    data = text.encode()
    if encoding == "cp1252":
        return data.decode("latin-1").translate(_CP1252)
    return data.decode(encoding, errors="replace")
