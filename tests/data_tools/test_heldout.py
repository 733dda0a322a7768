"""The held-out choice depends on content, salt and fraction alone."""

import pytest

from data_tools.document import digest
from data_tools.heldout import HeldoutConfig

HASHES = [digest(str(i)) for i in range(20_000)]


def held(fraction: float, salt: str = "heldout") -> set[bytes]:
    config = HeldoutConfig(fraction, salt)
    return {h for h in HASHES if config.holds([h])}


def test_the_share_is_met_and_grows_by_adding():
    assert len(held(0.0)) == 0
    assert 550 < len(held(0.03)) < 650
    assert held(0.01) < held(0.03)


def test_another_salt_is_another_choice():
    both = held(0.03) & held(0.03, "other")
    assert len(both) < 60


def test_a_cluster_is_held_out_with_any_of_its_members():
    config = HeldoutConfig(0.03)
    inside, outside = min(held(0.03)), min(set(HASHES) - held(0.03))
    assert config.holds([outside, inside]) and not config.holds([outside])


def test_the_whole_corpus_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"fraction=1\.0 must be at least 0 and below 1"):
        HeldoutConfig(1.0)
