"""What the fault campaign counts and writes; its rows are run by tests/system/test_faults.py."""

from bench.faults.command import page
from bench.faults.place import Outcome
from bench.faults.table import ROWS


def test_what_is_not_as_promised_is_lost_and_said():
    outcome = Outcome()
    for promised in (True, False):
        with outcome.trying(2):
            assert promised, "not as promised"
    assert (outcome.tried, outcome.survived, outcome.lost) == (4, 2, 2)
    with outcome.afterwards():
        pass
    assert outcome.survived == 2
    with outcome.afterwards():
        raise AssertionError("other bits\nin head")
    assert (outcome.tried, outcome.survived, outcome.lost) == (4, 0, 4)
    assert outcome.notes == ["LOST: not as promised", "LOST: other bits"]


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
