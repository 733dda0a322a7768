"""Counts of documents: how many, how long, how good. Those of all partitions add up.

A histogram is a mapping from the lower edge of a bin, as text (JSON has no other keys), to a count.
The bins are fixed, so that histograms of two builds compare too.
"""

from collections import Counter
from collections.abc import Iterable

from data_tools.document import Document
from data_tools.stage import Report

QUALITY_BINS = 20


class Tally:
    """Number, bytes, lengths and qualities of the documents that were added."""

    def __init__(self) -> None:
        self.documents = self.text_bytes = 0
        self._lengths: Counter[str] = Counter()
        self._qualities: Counter[str] = Counter()

    def add(self, document: Document) -> None:
        """Counts one document."""
        self.documents += 1
        self.text_bytes += len(document.text.encode())
        self._lengths[length_bin(len(document.text))] += 1
        self._qualities[quality_bin(document.quality)] += 1

    def report(self) -> Report:
        """Documents, UTF-8 bytes of their text, histograms of characters and of quality."""
        return {
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "lengths": dict(self._lengths),
            "qualities": dict(self._qualities),
        }


def length_bin(characters: int) -> str:
    """The bin of a length: powers of two, so "256" holds 256 to 511 characters."""
    return str(1 << characters.bit_length() - 1 if characters else 0)


def length_bins(used: Iterable[str]) -> list[str]:
    """All bins from the lowest to the highest of these."""
    bits = [int(bin).bit_length() for bin in used]
    return [length_bin(1 << n >> 1) for n in range(min(bits), max(bits) + 1)] if bits else []


def quality_bin(quality: float) -> str:
    """The bin of a quality from 0 to 1: "0.85" holds 0.85 up to 0.9, and the last one 1 too."""
    # the margin keeps 0.15 / 0.05 = 2.9999... in the bin that it starts
    index = min(int(quality * QUALITY_BINS + 1e-9), QUALITY_BINS - 1)
    return f"{index / QUALITY_BINS:.2f}"


def quality_bins() -> list[str]:
    """All of them."""
    return [quality_bin(i / QUALITY_BINS) for i in range(QUALITY_BINS)]
