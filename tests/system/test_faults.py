"""Rows of the fault campaign (`make faults`) with fewer faults, and shorter runs."""

import pytest

from bench.faults.place import Place
from bench.faults.table import ROWS

pytestmark = pytest.mark.system

TRIES = {
    "kills": 3,
    "full-disk": 1,
    "one-cannot-save": 4,
    "nan": 3,
    "bad-shard": 2,
}
"""The other rows have tests of their own, or only the campaign has the time for them."""


@pytest.mark.parametrize("name", TRIES)
def test_survived(name, tmp_path):
    outcome = ROWS[name].run(Place(tmp_path / name, seed=0, tries=TRIES[name], steps=150))
    assert (outcome.tried, outcome.survived) == (TRIES[name], TRIES[name]), outcome.notes
