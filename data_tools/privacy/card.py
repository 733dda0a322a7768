"""Bank cards (ISO/IEC 7812): issuer, length and Luhn checksum."""

import re
from collections.abc import Iterator

from data_tools.privacy.context import END, LOOSE, labelled, numbered

_CARD = re.compile(
    LOOSE + r"(?:[2-6][0-9]{13,18}|[2-6][0-9]{3}(?P<s>[ -])[0-9]{4}(?P=s)[0-9]{4}(?P=s)[0-9]{1,4}"
    r"(?:(?P=s)[0-9]{1,3})?|62[0-9]{2}(?:[ -]?[0-9]){12,15}|3[47][0-9]{2}[ -][0-9]{6}[ -][0-9]{5}"
    r"|9[0-9]{15,18})" + END
)
_LABEL = re.compile(
    r"卡号|银行|信用卡|储蓄卡|借记卡|银联|账[号户]|帐[号户]|card|account|visa|amex|unionpay",
    re.IGNORECASE,
)
_UNIONPAY = re.compile(r"62[0-9]{14,17}")
_ABROAD = re.compile(
    r"4[0-9]{15}|5[1-5][0-9]{14}|2[2-7][0-9]{14}|35(?:2[89]|[3-8][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|6(?:011|5[0-9]{2})[0-9]{12}"
)


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Luhn holds, and: UnionPay's prefix, or another issuer's with the digits in groups as on a
    card, or a word that says card. 16 digits that begin with 4 or 5 are also what posts of a
    large site are numbered by."""
    for match in _CARD.finditer(text, start, end):
        digits = re.sub("[ -]", "", match[0])
        if not _luhn(digits) or numbered(text, match.start()):
            continue
        grouped = digits != match[0] and _ABROAD.fullmatch(digits)
        if grouped or _UNIONPAY.fullmatch(digits) or labelled(text, match.start(), _LABEL):
            yield match.span()


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(d), 10)) for d in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0
