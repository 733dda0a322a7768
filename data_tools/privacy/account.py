"""QQ numbers and WeChat ids: only where the text says so."""

import re
from collections.abc import Iterator

from data_tools.privacy.context import END, labelled

_NUMBER = re.compile(rf"(?:(?<![0-9A-Za-z_])|(?<=QQ)|(?<=qq))[1-9][0-9]{{4,10}}{END}")
_QQ = re.compile(
    r"(?:(?:(?<![A-Za-z])[Qq]{2}|扣扣|企鹅号)(?:群|交流群|号码?|[账帐]号)*\s?(?:[是为]|is)?\s?[:：=]?\s?[(（]?"
    r"|(?:加[Qq]|[Qq]群)\s?[:：]?\s?|(?<![0-9A-Za-z])[Qq]\s?[:：]\s?)$"
)

_WECHAT = re.compile(
    r"[微薇威VvWw](?:(?<=[微薇威Vv])信|(?:(?<=[加+][VvWw])|(?<=[Ww])(?:e[Cc]hat|ECHAT|eixin|EIXIN)"
    r"|(?<![0-9A-Za-z_].)(?<=[VvWw])[Xx])(?![0-9A-Za-z_-]))"
    r"(?P<id>\s?(?:号码?|[账帐]号|[Ii][Dd](?![0-9A-Za-z_])))?(?P<mark>\s?(?:[是为]\s?[:：]?|[:：(（]))?\s?"
    r"(?P<name>[A-Za-z][0-9A-Za-z_-]{5,19}|[1-9][0-9]{5,10})(?![0-9A-Za-z_@-])(?!\.[0-9a-z])"
)


def find_qq(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """5 to 11 digits after the name of the service."""
    for match in _NUMBER.finditer(text, start, end):
        if labelled(text, match.start(), _QQ, 16):
            yield match.span()


def find_wechat(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """6 to 20 letters, digits, `_` and `-` after the name of the service; a plain word only after
    "WeChat id", digits alone only after a colon or that."""
    for match in _WECHAT.finditer(text, start, end):
        name = match["name"]
        if match["id"] or (match["mark"] if name.isdigit() else not name.isalpha()):
            yield match.span("name")
