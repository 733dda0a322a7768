"""Labelled synthetic records with private data, written from the standards, not from the engine.

`records(seed, each)` gives texts in Chinese, English and both, with the places of what is private
in them, and texts with what only looks so: order numbers, ISBNs, timestamps, hashes, versions,
numbers whose checksum fails. Nobody's data: every number is drawn at random.
"""

import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench import lookalikes, values

type Label = tuple[int, int, str]
"""(start, end, entity) in characters."""


class Record(NamedTuple):
    """A text and what is private in it."""

    text: str
    labels: tuple[Label, ...]


class Kind(NamedTuple):
    """One way in which an entity is written."""

    entity: str
    draw: Callable[[random.Random], str]
    templates: tuple[str, ...]
    """Sentences with one `{}`."""


KINDS: tuple[Kind, ...] = (
    Kind(
        "resident_id",
        values.resident_id,
        (
            "身份证号：{}。",
            "公民身份号码{}，请核对",
            "张某（{}）于昨日报案。",
            "ID card: {}",
            "id={}&name=x",
            '{"name": "李四", "idcard": "{}"}',
            "<td>王五</td><td>{}</td>",
            "李四,男,{},2020-01-01",
            "{}",
        ),
    ),
    Kind(
        "resident_id",
        values.resident_id_variant,
        ("身份证号码：{}", "The ID number is {}.", "证件{}号", "姓名\t身份证\n王五\t{}\n"),
    ),
    Kind(
        "resident_id",
        values.old_resident_id,
        ("身份证号：{}。", "旧身份证{}已失效", "ID card no. {}", "公民身份证件（{}）"),
    ),
    Kind(
        "uscc",
        values.uscc,
        (
            "统一社会信用代码：{}",
            "北京某某科技有限公司（{}）",
            "Credit code {}, registered in Beijing.",
            "税号:{}\n",
        ),
    ),
    Kind(
        "passport",
        values.passport,
        (
            "护照号：{}",
            "护照{}，有效期十年",
            "Passport No. {}",
            "持中国护照{}入境",
            "passport number is {}",
        ),
    ),
    Kind("passport", values.permit, ("港澳通行证号码：{}", "往来港澳通行证{}。", "回乡证 {}")),
    Kind(
        "plate",
        values.plate,
        (
            "车牌号{}的车主",
            "一辆{}小轿车",
            "plate {}, black sedan",
            "车主驾驶{}，逃逸",
            "号牌为{}的货车",
            "（{}）",
        ),
    ),
    Kind(
        "plate",
        values.green_plate,
        ("车牌{}。", "新能源车{}停在路边", "tesla {}", "违章车辆：{}\n"),
    ),
    Kind(
        "mobile",
        values.mobile,
        (
            "电话{}",
            "手机：{}。",
            "请联系王先生{}（微信同号）",
            "Tel:{}",
            "call {} now",
            "**{}**",
            '{"phone":"{}","age":30}',
            "<a href='tel:{}'>",
            "李四,{},北京市朝阳区",
            "电话\t\t{}",
            "收货人：赵六；电话：{}；地址：",
            "联系电话\n{}\n",
            "phone={}&code=1",
            "{}",
        ),
    ),
    Kind(
        "mobile",
        values.mobile_variant,
        ("手机号 {}，", "Mobile: {}", "联系人：李女士 {}", "phone\t{}\n", "拨打{}咨询", "({})"),
    ),
    Kind(
        "landline",
        values.landline,
        (
            "电话：{}",
            "Tel: {}",
            "地址：中山路1号，{}",
            "call {} for help",
            "传真{}。",
            "电话/传真：{}\n",
            "办公室 {}，值班室",
        ),
    ),
    Kind(
        "landline", values.labelled_landline, ("电话：{}", "Tel: {}", "传真：{}。", "联系电话:{}，")
    ),
    Kind(
        "bank_card",
        values.union_pay,
        (
            "卡号：{}",
            "打款到{}，户名李四",
            "card {}",
            "建行 {}",
            "{}",
            '{"card":"{}"}',
            "尾号是{}的卡",
        ),
    ),
    Kind(
        "bank_card",
        values.foreign_card,
        ("I paid with {}.", "信用卡{}", "visa: {}", "{} exp 09/27"),
    ),
    Kind(
        "bank_card",
        values.labelled_card,
        ("银行卡号：{}", "card number: {}", "工商银行账户{}，", "开户行：建设银行\n账号：{}\n"),
    ),
    Kind(
        "ip",
        values.ipv4,
        (
            "IP：{}",
            "来自{}的请求",
            "login from {}",
            "http://{}/index.html",
            "ping {}:8080",
            "{} - - [10/Oct/2000:13:55:36] GET /",
            '"client_ip":"{}"',
        ),
    ),
    Kind("ip", values.ipv6, ("地址 {}", "from {} port 22", "[{}]:443", "ip={}\n")),
    Kind(
        "email",
        values.email,
        (
            "邮箱：{}",
            "请发至{}。",
            "contact <{}>",
            "mailto:{}?subject=hi",
            "{}",
            "邮箱{}联系",
            "Author: Li Na <{}>\n",
            '"mail":"{}"',
            "{}, thanks.",
        ),
    ),
    Kind(
        "qq",
        values.qq,
        (
            "QQ：{}",
            "加QQ{}咨询",
            "qq号{}，",
            "QQ群: {}",
            "my QQ is {}",
            "扣扣 {}",
            "(QQ:{})",
            "QQ号码为{}。",
            "QQ交流群：{}",
            "客服qq={}\n",
        ),
    ),
    Kind(
        "wechat",
        values.wechat,
        (
            "微信号：{}",
            "加微信{}",
            "WeChat ID: {}",
            "微信: {}，",
            "vx：{}",
            "wechat {}",
            "微信（{}）",
            "微信号是{}。",
            "Wechat:{}\n",
            "+V信 {}",
        ),
    ),
    Kind(
        "icd10",
        values.icd10,
        (
            "诊断：2型糖尿病（{}）。",
            "出院诊断 {}，建议随访",
            "The patient was diagnosed with {}.",
            "疾病编码{}",
            "主诉：头晕3天。ICD-10：{}\n",
            '{"diagnosis": "{}"}',
        ),
    ),
    Kind("icd10", values.icd10_decimal, ("编码{}", "code {}", "{}", "糖尿病（{}）")),
)

FILLER = (
    "今天天气很好，我们去公园散步。",
    "The quick brown fox jumps over the lazy dog. ",
    "会议于2024年3月15日上午9:30召开，共120人参加。",
    "def add(a, b):\n    return a + b\n",
    "价格：¥1,299.00（含税）。",
    "According to the 2023 report, revenue grew by 12.5%. ",
    "",
)
JOINTS = ("，", "\n", "；", " ", "。\n\n")
WIDE = {ord(c): ord(c) + 0xFEE0 for c in string.digits + string.ascii_letters}


def records(seed: int, each: int) -> Iterator[Record]:
    """`each` records of every kind of private data, and of every kind of look-alike."""
    rng = random.Random(seed)
    # the medical words of a diagnosis would speak for its neighbours too
    others = [kind for kind in KINDS if kind.entity != "icd10"]
    for kind in KINDS:
        for n in range(each):
            parts = [_filler(rng), _sentence(rng, kind, kind.templates[n % len(kind.templates)])]
            if kind in others and rng.random() < 0.3:
                other = rng.choice(others)
                parts.append(_sentence(rng, other, rng.choice(other.templates)))
            yield _join(rng, [*parts, _filler(rng)])
    for draw in lookalikes.LOOKALIKES:
        for _ in range(each):
            yield _join(rng, [_filler(rng), Record(draw(rng), ()), _filler(rng)])


def _filler(rng: random.Random) -> Record:
    return Record(rng.choice(FILLER), ())


def _sentence(rng: random.Random, kind: Kind, template: str) -> Record:
    value = kind.draw(rng)
    if rng.random() < 0.1:
        value = value.translate(WIDE)
    before, after = template.split("{}")
    text = before + value + after
    return Record(text, ((len(before), len(before) + len(value), kind.entity),))


def _join(rng: random.Random, parts: list[Record]) -> Record:
    text, labels = "", []
    for part in parts:
        text += rng.choice(JOINTS) if text else ""
        labels += [
            (start + len(text), end + len(text), entity) for start, end, entity in part.labels
        ]
        text += part.text
    return Record(text, tuple(labels))
