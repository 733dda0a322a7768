"""Drops link farms."""

import re
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop

URL = re.compile(r"(?:https?://|ftp://|www\.)[!-~]+")


@dataclass(frozen=True)
class UrlRatio:
    """Addresses that are written out, as a reader of the page would see them."""

    most: float = 0.2
    """Largest share of the visible characters."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        found = sum(map(len, URL.findall(document.text)))
        ratio = share(found, measure(document.text).visible)
        if ratio > self.most:
            return Drop("url_ratio", f"{ratio:.3f} of it addresses, at most {self.most} allowed")
        return document
