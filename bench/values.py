"""Private data of nobody, drawn at random by the standards that say how it is written."""

import random
import string
from datetime import date, timedelta

# ---- identity: GB 11643, GB 32100, passports, plates ---------------------------------------------

_COUNTIES = """
110105 110101 120101 130102 140105 150102 210102 220102 230102 310101 310115 320102 330106 340104
350203 360102 370202 410105 420111 429004 430102 440106 440305 441900 450102 460105 500103 510107
513221 520102 522701 530102 532901 540102 610113 620102 630102 640104 650102 652901 659001 810000
830000
"""
COUNTIES = _COUNTIES.split()
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
    body = "".join(rng.choices(alphabet, k=8))  # GB 11714, with a check digit of its own
    values = [string.digits.find(c) if c.isdigit() else ord(c) - 55 for c in body]
    own = sum(w * v for w, v in zip((3, 7, 9, 10, 5, 8, 4, 2), values, strict=True))
    code += (
        rng.choice((*COUNTIES, "100000", "110000", "440000", "330100"))
        + body
        + "0123456789X"[-own % 11]
    )
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
_AREAS = """
010 020 021 022 023 024 025 027 028 029 0311 0351 0371 0411 0431 0451 0471 0512 0531 0551 0571
0591 0731 0755 0769 0771 0791 0851 0871 0891 0898 0931 0951 0971 0991 0532 0574 0592 0660 0722
0816 0872 0908 0335
"""
AREAS = _AREAS.split()


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


_DOMAINS = """
qq.com 163.com 126.com gmail.com pku.edu.cn sina.com.cn mail.ustc.edu.cn foxmail.com outlook.com
acme-tools.io yeah.net uni-koeln.de HOTMAIL.COM
"""
DOMAINS = _DOMAINS.split()


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
    domain = rng.choice(DOMAINS)
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
