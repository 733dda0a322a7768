"""Saves do not add up in memory."""

import pytest

from bench import checkpoint


def test_growth_is_told_in_shares_of_the_median():
    first = [500] * checkpoint.FIRST_SAVES  # not counted
    assert checkpoint.growth([*first, 1000, 1000, 1040, 990]) == 0.04


@pytest.mark.system
def test_memory_is_flat_over_40_saves(tmp_path):
    """A state left behind by each would be 50% more."""
    resident = checkpoint.memory(tmp_path, checkpoint.make(16), 40)
    assert checkpoint.growth(resident) < checkpoint.MOST_GROWTH, resident
