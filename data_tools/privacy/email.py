"""E-mail addresses."""

import re
from collections.abc import Iterator

_ADDRESS = re.compile(
    r"(?<![0-9A-Za-z._%+-])[0-9A-Za-z_](?:[0-9A-Za-z._%+-]{0,62}[0-9A-Za-z_+-])?"
    r"@((?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?\.)+)([A-Za-z]{2,24})(?![0-9A-Za-z_-])"
)
_RESERVED = re.compile(
    r"(?:^|\.)(?:example\.(?:com|org|net|edu)|(?:.*\.)?(?:example|test|invalid|localhost|local))$",
    re.IGNORECASE,
)
"""RFC 2606, 6761, 6762: domains that belong to nobody."""
_FILES = re.compile("png|jpe?g|gif|svg|webp|bmp|ico|js|ts|css|html?|json|py|md|txt", re.IGNORECASE)
"""`icon@2x.png` is a file."""


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Addresses whose domain can exist."""
    for match in _ADDRESS.finditer(text, start, end):
        domain = match[1] + match[2]
        if match[0].startswith("git@"):  # the way to a repository
            continue
        if not _FILES.fullmatch(match[2]) and not _RESERVED.search(domain):
            yield match.span()
