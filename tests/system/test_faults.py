"""Rows of the fault campaign (`make faults`) with fewer faults."""

import pytest

from bench.faults.command import page
from bench.faults.place import Outcome, Place
from bench.faults.table import ROWS

TRIES = {
    "kills": 3,
    "full-disk": 1,
    "one-cannot-save": 4,
    "nan": 1,
    "bad-shard": 2,
}
"""The other rows have tests of their own, or only the campaign has the time for them."""


@pytest.mark.system
@pytest.mark.parametrize("name", TRIES)
def test_survived(name, tmp_path):
    outcome = ROWS[name].run(Place(tmp_path / name, seed=0, tries=TRIES[name]))
    assert (outcome.tried, outcome.survived) == (TRIES[name], TRIES[name]), outcome.notes


def test_what_is_not_as_promised_is_lost_and_said():
    outcome = Outcome()
    for promised in (True, False):
        with outcome.trying(2):
            assert promised, "not as promised"
    assert (outcome.tried, outcome.survived, outcome.lost) == (4, 2, 2)
    assert outcome.notes == ["LOST: not as promised"]


def test_the_page_tells_losses():
    row = {
        "tried": 3,
        "survived": 2,
        "minutes": 1.0,
        "notes": ["LOST: a | b"],
        "time": "2026-12-01",
    }
    text = page({"nan": row}, seed=5)
    assert "| nan | 3 | 2 | 1 | 1.0 | LOST: a / b |" in text and "--seed=5" in text
    assert f"1 of {len(ROWS)} rows" in text
