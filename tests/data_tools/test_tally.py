"""Counts of documents, in bins that do not depend on what is counted."""

from dataclasses import replace

import pytest

from data_tools.document import Document
from data_tools.tally import Tally, length_bin, length_bins, quality_bin, quality_bins


@pytest.mark.parametrize(
    ("characters", "bin"), [(0, "0"), (1, "1"), (2, "2"), (3, "2"), (255, "128"), (256, "256")]
)
def test_length_bin(characters, bin):
    assert length_bin(characters) == bin


@pytest.mark.parametrize(
    ("quality", "bin"),
    [(0, "0.00"), (0.049, "0.00"), (0.15, "0.15"), (0.3, "0.30"), (0.949, "0.90"), (1, "0.95")],
)
def test_quality_bin(quality, bin):
    assert quality_bin(quality) == bin


def test_bins_without_gaps():
    assert length_bins(["8", "2"]) == ["2", "4", "8"]
    assert length_bins(["0", "4"]) == ["0", "1", "2", "4"]
    assert length_bins([]) == []
    assert len(quality_bins()) == 20 and quality_bins()[::19] == ["0.00", "0.95"]


def test_tally():
    tally = Tally()
    for text in ("天地玄黄", "a" * 5, "b" * 300):
        tally.add(replace(Document.make(text, "s", "web", "p", 0, {}), quality=0.5))
    assert tally.report() == {
        "documents": 3,
        "text_bytes": 12 + 5 + 300,
        "lengths": {"4": 2, "256": 1},
        "qualities": {"0.50": 3},
    }
