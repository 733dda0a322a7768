"""Chinese telephone numbers: mobile, and landline with its area code."""

import re
from collections.abc import Iterator

from data_tools.privacy.context import DASH, END, labelled, numbered

_SEPARATOR = rf"[ .\u00a0\u3000{DASH}]"
_COUNTRY = rf"(?:[(（](?:\+|00)?86[)）]|(?:\+|00)?86){_SEPARATOR}?"
_BEFORE = r"(?:(?<![0-9A-Za-z_])|(?<=tel)|(?<=Tel)|(?<=TEL)|(?<=phone)|(?<=Phone)|(?<=Mobile))"

_MOBILE = re.compile(
    rf"{_BEFORE}(?<![0-9][-.])(?<![¥￥$])(?:{_COUNTRY})?1[3-9][0-9](?:[0-9]{{8}}"
    rf"|(?P<a>{_SEPARATOR})[0-9]{{4}}(?P=a)[0-9]{{4}}|[ {DASH}][0-9]{{8}}"
    rf"|[0-9]{{4}}[ {DASH}][0-9]{{4}}"
    rf"|[0-9](?P<b>{_SEPARATOR})[0-9]{{3}}(?P=b)[0-9]{{4}})(?![0-9_])(?!\.[0-9])(?! ?[元万亿块])"
)

_LONG_AREA = (
    "3(?:1[0-9]|35|49|5[0-9]|7[0-9]|9[1-68])|4(?:1[0-9]|2[179]|3[1-9]|5[1-9]|6[4-9]|7[0-9]|8[23])"
    "|5(?:1[0-9]|23|27|3[0-9]|4[36]|5[0-9]|6[1-6]|7[0-9]|80|9[1-9])|6(?:3[1-5]|6[0238]|9[12])"
    "|7(?:01|1[0-9]|2[248]|3[0-9]|4[3-6]|5[0-9]|6[0-9]|7[0-9]|9[0-9])"
    "|8(?:1[2367]|18|2[5-9]|3[0-9]|5[1-9]|7[0-9]|8[3678]|9[1-8])"
    "|9(?:0[1-9]|1[1-9]|3[0-9]|4[13]|5[1-5]|7[0-9]|9[0-9])"
)
_SEVEN = rf"[2-8][0-9]{{2}}{_SEPARATOR}?[0-9]{{4}}"
_EIGHT = rf"[2-8][0-9]{{3}}{_SEPARATOR}?[0-9]{{4}}"
_EXTENSION = rf"(?:(?: ?转 ?|[ ,]?ext\.? ?|[{DASH}])[0-9]{{1,6}})?"
_LANDLINE = re.compile(
    rf"{_BEFORE}(?<![0-9][-.])(?:{_COUNTRY}[(（]?0?|[(（]?0)"
    rf"(?:(?:10|2[0-57-9])(?P<a>[)）]|{_SEPARATOR})?{_SEPARATOR}?{_EIGHT}"
    rf"|(?:{_LONG_AREA})(?P<b>[)）]|{_SEPARATOR})?{_SEPARATOR}?(?:{_EIGHT}|{_SEVEN}))"
    rf"{_EXTENSION}{END}"
)
_LOCAL = re.compile(rf"{_BEFORE}(?<![0-9][-.])(?:{_EIGHT}|{_SEVEN}){_EXTENSION}{END}")
_LABEL = re.compile(
    r"(?:电话|座机|固话|传真|热线|致电|拨打|手机|联系方式|(?:tel|fax|phone|mobile)(?![a-z]))"
    r"(?:号码?|为|是|至)*[ .:：]*$",
    re.IGNORECASE,
)


def find_mobile(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """11 digits from 13 to 19, in one piece or in the usual groups, with or without +86. Letters
    follow only where a label says that it is a telephone."""
    for match in _MOBILE.finditer(text, start, end):
        here, after = match.span()
        alone = re.match("[A-Za-z]", text[after : after + 1]) is None
        if (alone and not numbered(text, here)) or labelled(text, here, _LABEL, 16):
            yield here, after


def find_landline(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """An area code and a number, set apart; in one piece, or without the code, after a label."""
    for pattern in (_LANDLINE, _LOCAL):
        for match in pattern.finditer(text, start, end):
            here = match.start()
            apart = pattern is _LANDLINE and (match["a"] or match["b"])
            if (apart and not numbered(text, here)) or labelled(text, here, _LABEL, 16):
                yield match.span()
