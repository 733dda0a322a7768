"""Drops documents that were decoded wrongly and cannot be repaired."""

import re
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop

# Each is frequent in one kind of damage and next to absent from sound text.
TRACES = re.compile(
    "[\ufffd]"  # a decoder gave up
    "|锟斤拷|烫烫烫|屯屯屯"  # U+FFFD read as GBK; memory that was never written
    "|[锛銆鐨鏄鍦鎴杩鍥鍒]"  # UTF-8 Chinese read as GBK: ，。的是在我这国到
    "|[\u0080-\u00ff]{4,}"  # GBK or UTF-8 Chinese read as Latin-1; no language has four in a row
    "|[ÂÃ][\u0080-\u00bf]|â€"  # UTF-8 read as Latin-1 or cp1252
)


@dataclass(frozen=True)
class Mojibake:
    """Counts the traces of the usual accidents with encodings."""

    most: float = 0.01
    """Largest share of the visible characters. A novel, news, reviews and manual pages had none,
    a page about mojibake 0.003, a table of Latin-1 0.008; damaged Chinese has 0.04 and more."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        found = sum(map(len, TRACES.findall(document.text)))
        ratio = share(found, measure(document.text).visible) if found else 0.0
        if ratio > self.most:
            detail = f"{ratio:.3f} of it wrongly decoded, at most {self.most} allowed"
            return Drop("mojibake", detail)
        return document
