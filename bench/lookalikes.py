"""What looks private and is not: numbers that count, name or check something else."""

import random
import string
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def _digits(rng: random.Random, n: int) -> str:
    return "".join(rng.choices(string.digits, k=n))


def _moment(rng: random.Random) -> datetime:
    return datetime(2001, 9, 10, tzinfo=UTC) + timedelta(seconds=rng.randrange(800_000_000))


def order_number(rng: random.Random) -> str:
    """Eight to twenty digits that a word calls an order."""
    number = _digits(rng, rng.randint(8, 20))
    form = rng.choice(
        ("订单号：{}", "订单编号{}", "运单号 {}", "Order No. {}", "tracking number: {}")
    )
    return form.format(number)


def phone_like_id(rng: random.Random) -> str:
    """Eleven digits that begin like a mobile number."""
    number = f"1{rng.choice('356789')}{_digits(rng, 9)}"
    forms = (
        "工单号{}",
        "编号：{}",
        "商品编码{}",
        "流水号：{}",
        "uid={}",
        "Invoice number {}",
        "SKU {}",
    )
    return rng.choice((*forms, "https://www.abc.com/item/{}.html", "ref_{}", "img{}.jpg")).format(
        number
    )


def isbn(rng: random.Random) -> str:
    """13 digits with their checksum, in one piece or in groups."""
    body = f"9787{_digits(rng, 8)}"
    total = sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(body))
    number = f"{body}{-total % 10}"
    grouped = f"{number[:3]}-{number[3]}-{number[4:7]}-{number[7:12]}-{number[12]}"
    return rng.choice(("ISBN {}", "ISBN：{}", "书号{}", "{}")).format(rng.choice((number, grouped)))


def timestamp(rng: random.Random) -> str:
    """Seconds, milliseconds, microseconds; 14 digits; ISO 8601; and ranges of dates."""
    moment = _moment(rng)
    seconds = int(moment.timestamp())
    return rng.choice(
        (
            f"ts={seconds}",
            f'"time": {seconds * 1000 + rng.randrange(1000)}',
            f"{seconds * 1_000_000 + rng.randrange(1_000_000)}",
            moment.strftime("%Y%m%d%H%M%S"),
            moment.strftime("%Y-%m-%dT%H:%M:%S.%f"),
            moment.strftime("%Y-%m-%d %H:%M:%S"),
            moment.strftime("%Y.%m.%d-") + moment.strftime("%Y.%m.%d"),
            moment.strftime("%Y%m%d-%Y%m%d"),
        )
    )


def hexadecimal(rng: random.Random) -> str:
    """Digests of usual lengths, UUIDs, colours, addresses in memory."""
    length = rng.choice((8, 16, 32, 40, 64))
    digest = "".join(rng.choices("0123456789abcdef", k=length - 1)) + rng.choice("abcdef")
    identity = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return rng.choice(
        (f"sha: {digest}", digest.upper(), identity, f"0x{digest[:16]}", f"#{digest[:6]}")
    )


def version(rng: random.Random) -> str:
    """Three or four numbers with dots."""
    a, b, c, d = (rng.randrange(n) for n in (20, 30, 400, 200))
    forms = (
        f"v{a}.{b}.{c}",
        f"版本{a}.{b}.{d}.{d}",
        f"version {a}.{b}.{d}.{b}",
        f"Chrome/{100 + a}.0.{4000 + c}.{d}",
        f"numpy=={a}.{b}.{d % 10}",
        f"{a % 9 + 1}.{b % 9 + 1}.{c % 9 + 1}.{d % 9 + 1} 概述",
        f"V{10 + a}.{b}.{d}",
    )
    return rng.choice(forms)


def wrong_resident_id(rng: random.Random) -> str:
    """18 digits with a wrong checksum, a date that is none, or a place that is none."""
    place, born = (
        "110105",
        f"19{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}",
    )
    match rng.randrange(3):
        case 0:
            body = f"{place}{born}{_digits(rng, 3)}"
            weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
            total = sum(w * int(d) for w, d in zip(weights, body, strict=True))
            right = "10X98765432"[total % 11]
            number = body + rng.choice([c for c in "0123456789X" if c != right])
        case 1:
            number = f"{place}1990{rng.randint(13, 99)}{_digits(rng, 6)}"
        case _:
            number = (
                f"{rng.choice(('990105', '190101', '470101', '119901'))}{born}{_digits(rng, 4)}"
            )
    return rng.choice(("身份证号：{}", "id {}", "{}")).format(number)


def wrong_card(rng: random.Random) -> str:
    """16 or 19 digits with UnionPay's prefix that fail Luhn."""
    body = f"6222{_digits(rng, rng.choice((11, 14)))}"
    total = sum(
        int(d) if i % 2 else sum(divmod(int(d) * 2, 10)) for i, d in enumerate(reversed(body))
    )
    wrong = (-total + rng.randint(1, 9)) % 10
    return rng.choice(("卡号 {}", "card {}", "{}")).format(f"{body}{wrong}")


def snowflake(rng: random.Random) -> str:
    """Ids of posts: 64-bit snowflakes of 18 and 19 digits, 16-digit ids that begin with 4 or 5."""
    flake = rng.randrange(3 * 10**17, 19 * 10**17)
    post = rng.choice("45") + _digits(rng, 15)
    return rng.choice(
        (f"status/{flake}", f'"id": {flake}', f"{flake}", f"mid={post}", f"weibo {post}")
    )


def cas_number(rng: random.Random) -> str:
    """Chemicals: up to seven digits, two, and a checksum."""
    body = f"{rng.randint(50, 9_999_999)}{rng.randint(10, 99)}"
    check = sum(int(d) * i for i, d in enumerate(reversed(body), 1)) % 10
    return rng.choice(("CAS {}", "CAS号：{}", "（{}）")).format(f"{body[:-2]}-{body[-2:]}-{check}")


def letter_and_digits(rng: random.Random) -> str:
    """Categories of ICD-10 that name a meeting, a mask, a plane, a road, a chip, a cell."""
    return rng.choice(
        (
            "G20峰会在杭州举行",
            "N95口罩供应充足",
            "the F22 Raptor flew past",
            "高速公路G15沪渝段",
            "J20战斗机",
            "see cell B12 and C45",
            "LGA1700 与 M20 螺栓",
            "a Q50 sedan and an X70 SUV",
            "Table B12.3 lists them",
            "图A15.2所示",
            "Oracle R12.1 documentation",
        )
    )


def plain_numbers(rng: random.Random) -> str:
    """Amounts, coordinates, readings, results."""
    return rng.choice(
        (
            f"共计{rng.randrange(10**11)}元",
            f"{rng.uniform(-180, 180):.11f},{rng.uniform(-90, 90):.12f}",
            f"total={rng.random():.16f}",
            f"{rng.randrange(10**6)}/{rng.randrange(10**6)}",
            f"人口{rng.randrange(10**9):,}",
            f"[{', '.join(_digits(rng, 6) for _ in range(8))}]",
            f"比分 {rng.randrange(99)}-{rng.randrange(99)}-{rng.randrange(99)}",
            f"3.14159265358979{_digits(rng, 20)}",
            f"{_digits(rng, 18)}, {_digits(rng, 17)}",
            f"QQ{2000 + rng.randrange(20)}版",
            f"微信{rng.randint(6, 8)}.0.{rng.randrange(50)}",
            "微信公众号：renminribao2012",
            "微信支付 WeChat Pay 与 weixin",
            f"护照办理窗口{rng.randint(1, 9)}号，每日限{_digits(rng, 3)}人",
            f"新A股{_digits(rng, 5)}点",
        )
    )


def registry(rng: random.Random) -> str:
    """Numbers that public registers give to sites, papers, patents, goods and institutions."""
    return rng.choice(
        (
            f"京ICP备{_digits(rng, 8)}号-1",
            f"粤B2-{2000 + rng.randrange(25)}{_digits(rng, 4)}",
            f"京公网安备 1101{_digits(rng, 10)}号",
            f"doi:10.1038/s{_digits(rng, 5)}-021-{_digits(rng, 5)}",
            f"arXiv:{rng.randint(10, 24)}{rng.randint(1, 12):02d}.{_digits(rng, 5)}",
            f"ISSN {_digits(rng, 4)}-{_digits(rng, 4)}",
            f"CN{2000 + rng.randrange(25)}{_digits(rng, 8)}.7",
            f"条码 69{_digits(rng, 11)}",
            f"邮编 {_digits(rng, 6)}",
            f"股票代码 60{_digits(rng, 4)}",
            f"客服热线 400-{_digits(rng, 3)}-{_digits(rng, 4)}",
            f"（20{_digits(rng, 2)}）京01民初{_digits(rng, 4)}号",
        )
    )


def nobodys_address(rng: random.Random) -> str:
    """Addresses that belong to nobody: private, loopback, reserved for examples; MACs, times."""
    b = [rng.randrange(256) for _ in range(6)]
    return rng.choice(
        (
            f"192.168.{b[0]}.{b[1]}",
            f"10.{b[0]}.{b[1]}.{b[2]}",
            "127.0.0.1:8080",
            f"203.0.113.{b[0]}",
            f"2001:db8::{b[0]:x}",
            f"fe80::{b[0]:x}:{b[1]:x}",
            ":".join(f"{n:02x}" for n in b),
            "12:30:45",
            "user@example.com",
            "admin@host.local",
            "logo@2x.png",
            "std::vector<int> a::b",
            "@decorator",
            "npm i lodash@4.17.21",
            "git clone git@github.com:org/repo.git",
            "@zhangsan 你好",
            "root@localhost:~$",
            "http://user:pass@10.0.0.1/",
        )
    )


def test_vector(rng: random.Random) -> str:
    """Lines of code with long constants."""
    return rng.choice(
        (
            f"assert crc({_digits(rng, 8)}) == {_digits(rng, 10)}",
            f"SEED = {rng.randrange(10**12, 10**13)}",
            f"x = [{_digits(rng, 7)}, -{_digits(rng, 7)}]",
            f'parse("{_digits(rng, 12)}")',
            f"0b{rng.getrandbits(24):024b}",
            f"1e{rng.randrange(300)} + {rng.random()}",
            f"PI = 3.{_digits(rng, 18)}",
        )
    )


LOOKALIKES: tuple[Callable[[random.Random], str], ...] = (
    order_number,
    phone_like_id,
    isbn,
    timestamp,
    hexadecimal,
    version,
    wrong_resident_id,
    wrong_card,
    snowflake,
    cas_number,
    letter_and_digits,
    plain_numbers,
    registry,
    nobodys_address,
    test_vector,
)
