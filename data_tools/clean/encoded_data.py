"""Drops files that are mostly encoded data: base64, hex, escapes."""

import re
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import share
from data_tools.document import Document, Drop

ENCODED = re.compile(
    r"(?:[A-Za-z0-9+/=]{60,}\s*)+"  # base64, in lines as MIME and PEM have them or in one
    r"|(?:(?:0x|\\x)?[0-9a-fA-F]{2}(?:,\s*|\s+|(?=\\x))){8,}"  # bytes in hex
    r"|(?:\\u[0-9a-fA-F]{4}){8,}"
)


@dataclass(frozen=True)
class EncodedData:
    """StarCoder2's rule; words one a line are no base64 here."""

    most: float = 0.5
    """Largest share of the characters: StarCoder2's."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        found = sum(map(len, ENCODED.findall(document.text)))
        ratio = share(found, len(document.text))
        if ratio > self.most:
            detail = f"{ratio:.3f} of it encoded data, at most {self.most} allowed"
            return Drop("encoded_data", detail)
        return document
