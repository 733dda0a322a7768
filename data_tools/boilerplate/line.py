"""A line as it is compared: its normal form, and the hash of that."""

import hashlib
import re
import unicodedata

# NFKC leaves these characters as they are and joins none with a neighbour; between them it costs a
# third of what it costs over a whole line.
NOT_HAN = re.compile(r"[^\u4e00-\u9fff]+")
DIGITS = re.compile(r"\d+")
BLOCK = re.compile(r"```|~~~|\.\. [\w-]+::")
LETTER = re.compile(r"[^\W\d_]")


def lines_of(text: str) -> list[str]:
    """Its lines with their ends; a newline ends a line, and nothing else does."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def normal_form(line: str) -> str:
    """What the variants of a line have in common.

    NFKC, no case, single spaces, none around, and 0 for each run of digits: "第 3 页" and
    "第 12 页" are one line, and so are two lines that differ in their numbers only.
    """
    if not line.isascii():
        line = NOT_HAN.sub(lambda m: unicodedata.normalize("NFKC", m[0]), line)
    return DIGITS.sub("0", " ".join(line.casefold().split()))


def is_counted(normal: str, shortest: int) -> bool:
    """Whether a line may be boilerplate for its frequency: it has a letter, and opens no block (a
    fence of Markdown, a directive of reStructuredText), which would lose its end or its head."""
    return len(normal) >= shortest and bool(LETTER.search(normal)) and not BLOCK.match(normal)


def hash64(text: str) -> int:
    """64 bits of a line in normal form, or of a site.

    That one of 10^10 lines has the hash of one of 10^6 others by chance: 1 in 2,000.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
