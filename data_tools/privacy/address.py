"""IP addresses that are somebody's: public unicast ones."""

import ipaddress
import re
from collections.abc import Iterator

from data_tools.privacy.context import labelled

_FOUR = re.compile(
    r"(?:(?<![0-9A-Za-z_.-])|(?<=IP))(?<![^/:\s]/)(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}"
    r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?![0-9A-Za-z_-])(?!\.[0-9A-Za-z])"
)
_SIX = re.compile(r"[23][0-9A-Fa-f]{3}:(?<![0-9A-Za-z:.].{5})[0-9A-Fa-f:]{2,34}(?![0-9A-Za-z:])")
_VERSION = re.compile(
    r"(?:版本?|version|ver\.?|release|build|rev|firmware|chrome|firefox|v)\s*[:：=/]?\s*$",
    re.IGNORECASE,
)
_SECTION = re.compile(r"(?:^|\n)[ \t#]*$|[第章节条见]\s*$|(?:section|§)\s*$", re.IGNORECASE)
_LABEL = re.compile(
    r"(?<![A-Za-z])IP|地址|主机|服务器|网关|登录|host|server|addr|client|remote|from|ping|://",
    re.IGNORECASE,
)
_UNOWNED = tuple(
    ipaddress.ip_network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    )
)
"""Private, loopback, documentation, multicast (RFC 6890). Written out: the standard library's
`is_global` changes with its release."""
_RESERVED = (ipaddress.ip_network("2001::/23"), ipaddress.ip_network("2001:db8::/32"))
"""Protocols and documentation."""


def find_four(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """IPv4; what may be the number of a section needs a word that says address."""
    for match in _FOUR.finditer(text, start, end):
        here = match.start()
        lengths = [len(part) for part in match[0].split(".")]
        heading = max(lengths) < 3 and labelled(text, here, _SECTION, 12)
        plain = sum(lengths) >= (8 if heading else 6)
        if labelled(text, here, _VERSION, 16) or not (plain or labelled(text, here, _LABEL)):
            continue
        address = ipaddress.IPv4Address(match[0])
        if not any(address in block for block in _UNOWNED):
            yield match.span()


def find_six(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """IPv6, global unicast (2000::/3)."""
    for match in _SIX.finditer(text, start, end):
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            continue
        if not any(address in block for block in _RESERVED):
            yield match.span()
