"""Labelled synthetic records with private data, written from the standards, not from the engine.

`records(seed, each)` gives texts in Chinese, English and both, with the places of what is private in
them, and texts with what only looks so: order numbers, ISBNs, timestamps, hashes, versions, numbers
whose checksum fails. Nobody's data: every number is drawn at random.
"""

import random
import string
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from bench import lookalikes

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


# ---- identity: GB 11643, GB 32100, passports, plates ---------------------------------------------

COUNTIES = (
    "110105 110101 120101 130102 140105 150102 210102 220102 230102 310101 310115 320102 330106"
    " 340104 350203 360102 370202 410105 420111 429004 430102 440106 440305 441900 450102 460105"
    " 500103 510107 513221 520102 522701 530102 532901 540102 610113 620102 630102 640104 650102"
    " 652901 659001 810000 830000"
).split()  # noqa: SIM905
"""GB/T 2260, some of every province; Dongguan has no counties; ids of Hong Kong and Taiwan."""


def _day(rng: random.Random, first: int, last: int) -> date:
    start = date(first, 1, 1)
    return start + timedelta(rng.randrange((date(last, 12, 31) - start).days))


def _digits(rng: random.Random, n: int) -> str:
    return "".join(rng.choices(string.digits, k=n))


def resident_id(rng: random.Random) -> str:
    """18 characters, the last by ISO 7064 MOD 11-2."""
    body = rng.choice(COUNTIES) + _day(rng, 1930, 2024).strftime("%Y%m%d")
    body += f"{rng.randint(1, 999):03d}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(w * int(d) for w, d in zip(weights, body, strict=True))
    return body + "10X98765432"[total % 11]


def resident_id_variant(rng: random.Random) -> str:
    """A small x, or in groups."""
    number = resident_id(rng)
    mark = rng.choice(" -")
    grouped = f"{number[:6]}{mark}{number[6:14]}{mark}{number[14:]}"
    return rng.choice((number.lower(), grouped))


def old_resident_id(rng: random.Random) -> str:
    """15 digits."""
    return rng.choice(COUNTIES) + _day(rng, 1930, 1985).strftime("%y%m%d") + _digits(rng, 3)


def uscc(rng: random.Random) -> str:
    """GB 32100: registry, kind, division, organisation, checksum MOD 31."""
    alphabet = "0123456789ABCDEFGHJKLMNPQRTUWXY"
    code = rng.choice(("91", "92", "93", "51", "52", "53", "11", "12", "Y1", "N1"))
    code += rng.choice((*COUNTIES, "100000")) + "".join(rng.choices(alphabet, k=9))
    weights = (1, 3, 9, 27, 19, 26, 16, 17, 20, 29, 25, 13, 8, 24, 10, 30, 28)
    total = sum(w * alphabet.index(c) for w, c in zip(weights, code, strict=True))
    return code + alphabet[(31 - total % 31) % 31]


def passport(rng: random.Random) -> str:
    """Ordinary (E and a digit or letter; G before 2012), diplomatic, service, public affairs."""
    first = rng.choice(("E", "E", "G", "D", "S", "P", "EA", "EH", "EK", "DE", "SE", "PE"))
    return first + _digits(rng, 9 - len(first))


def permit(rng: random.Random) -> str:
    """Travel permits: C to Hong Kong and Macao, H and M from there."""
    return rng.choice("CHM") + _digits(rng, 8)


PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
PLATE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def plate(rng: random.Random) -> str:
    """GA 36: five places, at most two of them letters; or four and what the car is for."""
    places = list(_digits(rng, 5))
    for at in rng.sample(range(5), rng.choice((0, 0, 1, 2))):
        places[at] = rng.choice(PLATE_LETTERS)
    if rng.random() < 0.1:
        places[4] = rng.choice("挂学警")
    mark = rng.choice(("", "", "·", " ", "-"))
    return rng.choice(PROVINCES) + rng.choice(PLATE_LETTERS) + mark + "".join(places)


def green_plate(rng: random.Random) -> str:
    """New energy: small cars D or F (now A to K) in front, large ones behind."""
    small = rng.choice("DFABCEGHJK") + rng.choice(PLATE_LETTERS + string.digits) + _digits(rng, 4)
    large = _digits(rng, 5) + rng.choice("DF")
    head = rng.choice(PROVINCES) + rng.choice(PLATE_LETTERS) + rng.choice(("", "·"))
    return head + rng.choice((small, large))


# ---- numbers: telephone, card, address -----------------------------------------------------------

MOBILE = (
    *range(130, 140),
    *(145, 147, 149, 150, 151, 152, 153, 155, 156, 157, 158, 159, 162, 165, 166, 167),
    *(170, 171, 172, 173, 175, 176, 177, 178),
    *range(180, 190),
    *(190, 191, 192, 193, 195, 196, 197, 198, 199),
)
AREAS = (
    "010 020 021 022 023 024 025 027 028 029 0311 0351 0371 0411 0431 0451 0471 0512 0531 0551 0571"
    " 0591 0731 0755 0769 0771 0791 0851 0871 0891 0898 0931 0951 0971 0991 0532 0574 0592 0660 0722"
    " 0816 0872 0908 0335"
).split()  # noqa: SIM905


def mobile(rng: random.Random) -> str:
    """11 digits."""
    return f"{rng.choice(MOBILE)}{_digits(rng, 8)}"


def mobile_variant(rng: random.Random) -> str:
    """In groups, with the code of the country, or both."""
    n = mobile(rng)
    mark = rng.choice(" -")
    number = rng.choice(
        (
            n,
            f"{n[:3]}{mark}{n[3:7]}{mark}{n[7:]}",
            f"{n[:4]}{mark}{n[4:7]}{mark}{n[7:]}",
            f"{n[:3]}{mark}{n[3:]}",
        )
    )
    return rng.choice(("", "+86", "+86 ", "86-", "(+86)", "0086 ")) + number


def landline(rng: random.Random) -> str:
    """An area code, seven or eight digits, sometimes an extension."""
    area = rng.choice(AREAS)
    number = rng.choice("2345678") + _digits(rng, 7 if len(area) == 3 else rng.choice((6, 7)))
    if rng.random() < 0.2:
        number = f"{number[:-4]} {number[-4:]}"
    joined = rng.choice((f"{area}-{number}", f"({area}){number}", f"（{area}）{number}"))
    abroad = f"+86-{area[1:]}-{number}"
    extension = rng.choice(("", "", "", f"-{rng.randint(10, 9999)}", f"转{rng.randint(10, 9999)}"))
    return rng.choice((joined, joined, f"{area} {number}", abroad)) + extension


def labelled_landline(rng: random.Random) -> str:
    """In one piece, or without the area code."""
    area = rng.choice([a for a in AREAS if len(a) == 3])
    return rng.choice((area, "")) + rng.choice("2345678") + _digits(rng, 7)


def _luhn(body: str) -> str:
    total = 0
    for i, d in enumerate(reversed(body)):
        total += int(d) if i % 2 else sum(divmod(int(d) * 2, 10))
    return body + str(-total % 10)


def _grouped(number: str, mark: str) -> str:
    return mark.join(number[i : i + 4] for i in range(0, len(number), 4))


def union_pay(rng: random.Random) -> str:
    """ISO/IEC 7812 with the issuers' prefix 62."""
    issuer = rng.choice(("622202", "621700", "622848", "621661", "625912", "628288", "623058"))
    number = _luhn(issuer + _digits(rng, rng.choice((16, 17, 18, 19, 19)) - 7))
    return rng.choice((number, number, _grouped(number, " "), _grouped(number, "-")))


def foreign_card(rng: random.Random) -> str:
    """16 digits with another issuer's prefix, in groups."""
    issuer = rng.choice(("4", "51", "55", "3528", "6011"))
    return _grouped(_luhn(issuer + _digits(rng, 15 - len(issuer))), rng.choice(" -"))


def labelled_card(rng: random.Random) -> str:
    """In one piece: the sentence says that it is a card."""
    issuer = rng.choice(("4", "53", "9558", "6222"))
    length = 19 if issuer in ("9558", "6222") else 16
    return _luhn(issuer + _digits(rng, length - 1 - len(issuer)))


def ipv4(rng: random.Random) -> str:
    """A public address."""
    first = rng.choice((36, 58, 61, 101, 114, 117, 120, 140, 180, 202, 210, 218, 223))
    return ".".join(
        map(str, (first, rng.randint(100, 255), rng.randrange(256), rng.randrange(256)))
    )


def ipv6(rng: random.Random) -> str:
    """Global unicast, whole or shortened."""
    head = rng.choice(("2001:da8", "240e:3a1", "2408:8256", "2409:8a00", "2606:4700"))
    tail = [f"{rng.randrange(1, 1 << 16):x}" for _ in range(6)]
    return rng.choice((f"{head}:{':'.join(tail)}", f"{head}:{tail[0]}::{tail[1]}"))


# ---- names: e-mail, accounts, diagnoses ----------------------------------------------------------

NAMES = (
    "zhangwei",
    "li.na",
    "wang_fang",
    "liuyang88",
    "chen-jing",
    "j.smith",
    "maria.garcia",
    "xuli",
)


def email(rng: random.Random) -> str:
    """RFC 5322, as people have them."""
    local = rng.choice(
        (
            rng.choice(NAMES),
            rng.choice(NAMES) + _digits(rng, rng.randint(1, 4)),
            rng.choice("123456789") + _digits(rng, rng.randint(6, 9)),
            f"{rng.choice(NAMES)}+news",
            mobile(rng),
        )
    )
    domain = rng.choice(
        (
            "qq.com",
            "163.com",
            "126.com",
            "gmail.com",
            "pku.edu.cn",
            "sina.com.cn",
            "mail.ustc.edu.cn",
        )
        + ("foxmail.com", "outlook.com", "acme-tools.io", "yeah.net", "uni-koeln.de", "HOTMAIL.COM")
    )
    return f"{local}@{domain}"


def qq(rng: random.Random) -> str:
    """5 to 10 digits."""
    return rng.choice("123456789") + _digits(rng, rng.randint(4, 9))


def wechat(rng: random.Random) -> str:
    """6 to 20 places, a letter first."""
    tail = "".join(rng.choices(string.ascii_lowercase + string.digits + "_-", k=rng.randint(4, 12)))
    own = rng.choice(string.ascii_lowercase) + tail + rng.choice(string.digits)
    given = "wxid_" + "".join(rng.choices(string.ascii_lowercase + string.digits, k=14))
    return rng.choice((own, own, given))


def icd10(rng: random.Random) -> str:
    """Three characters, or more as the Chinese clinical edition writes them."""
    code = rng.choice(("E11", "I10", "J18", "K29", "N18", "C34", "G20", "F32", "M54", "I63", "S72"))
    long = rng.choice((".9", ".900", ".x00", ".101", ".900x001", f".{rng.randrange(10)}"))
    return code + rng.choice(("", long, long))


def icd10_decimal(rng: random.Random) -> str:
    """With decimals, which need no context."""
    return rng.choice(("E11", "I25", "J45", "K80", "N20", "C50", "F41", "M17")) + rng.choice(
        (".9", ".100", ".x00", ".901", ".2")
    )


KINDS: tuple[Kind, ...] = (
    Kind(
        "resident_id",
        resident_id,
        (
            "身份证号：{}。",
            "公民身份号码{}，请核对",
            "张某（{}）于昨日报案。",
            "ID card: {}",
            "id={}&name=x",
            "{}",
        ),
    ),
    Kind(
        "resident_id", resident_id_variant, ("身份证号码：{}", "The ID number is {}.", "证件{}号")
    ),
    Kind("resident_id", old_resident_id, ("身份证号：{}。", "旧身份证{}已失效", "ID card no. {}")),
    Kind(
        "uscc", uscc, ("统一社会信用代码：{}", "（{}）", "Credit code {}, registered in Beijing.")
    ),
    Kind(
        "passport",
        passport,
        ("护照号：{}", "护照{}，有效期十年", "Passport No. {}", "持护照{}入境"),
    ),
    Kind("passport", permit, ("港澳通行证号码：{}", "往来港澳通行证{}。")),
    Kind(
        "plate",
        plate,
        ("车牌号{}的车主", "一辆{}小轿车", "plate {}, black sedan", "车主驾驶{}，逃逸"),
    ),
    Kind("plate", green_plate, ("车牌{}。", "新能源车{}停在路边", "tesla {}")),
    Kind(
        "mobile",
        mobile,
        (
            "电话{}",
            "手机：{}。",
            "请联系王先生{}（微信同号）",
            "Tel:{}",
            "call {} now",
            "{}",
            "**{}**",
        ),
    ),
    Kind(
        "mobile", mobile_variant, ("手机号 {}，", "Mobile: {}", "联系人：李女士 {}", "phone\t{}\n")
    ),
    Kind(
        "landline",
        landline,
        ("电话：{}", "Tel: {}", "地址：中山路1号，{}", "call {} for help", "传真{}。"),
    ),
    Kind("landline", labelled_landline, ("电话：{}", "Tel: {}", "传真：{}。")),
    Kind("bank_card", union_pay, ("卡号：{}", "打款到{}，户名李四", "card {}", "建行 {}", "{}")),
    Kind("bank_card", foreign_card, ("I paid with {}.", "信用卡{}", "visa: {}")),
    Kind("bank_card", labelled_card, ("银行卡号：{}", "card number: {}", "工商银行账户{}，")),
    Kind(
        "ip",
        ipv4,
        ("IP：{}", "来自{}的请求", "login from {}", "http://{}/index.html", "ping {}:8080"),
    ),
    Kind("ip", ipv6, ("地址 {}", "from {} port 22", "[{}]:443")),
    Kind("email", email, ("邮箱：{}", "请发至{}。", "contact <{}>", "mailto:{}?subject=hi", "{}")),
    Kind(
        "qq",
        qq,
        ("QQ：{}", "加QQ{}咨询", "qq号{}，", "QQ群: {}", "my QQ is {}", "扣扣 {}", "(QQ:{})"),
    ),
    Kind(
        "wechat",
        wechat,
        ("微信号：{}", "加微信{}", "WeChat ID: {}", "微信: {}，", "vx：{}", "wechat {}"),
    ),
    Kind(
        "icd10",
        icd10,
        (
            "诊断：2型糖尿病（{}）。",
            "出院诊断 {}，建议随访",
            "The patient was diagnosed with {}.",
            "疾病编码{}",
        ),
    ),
    Kind("icd10", icd10_decimal, ("编码{}", "code {}", "{}")),
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
    start = template.index("{}")
    return Record(template.replace("{}", value), ((start, start + len(value), kind.entity),))


def _join(rng: random.Random, parts: list[Record]) -> Record:
    text, labels = "", []
    for part in parts:
        text += rng.choice(JOINTS) if text else ""
        labels += [
            (start + len(text), end + len(text), entity) for start, end, entity in part.labels
        ]
        text += part.text
    return Record(text, tuple(labels))
