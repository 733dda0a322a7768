"""What the fault campaign counts and writes; its rows are run by tests/system/test_faults.py."""

import os
import subprocess
import sys

import pytest

from bench import runs
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


def test_a_launcher_that_has_ended_has_no_processes():
    """So that a row says how it ended."""
    with subprocess.Popen(["true"]) as ended:
        pass
    assert runs.children(ended.pid) == [] and runs.processes(ended) == {}


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
    missing = text.partition("Not run with this code: ")[2].partition(".\n")[0].split(", ")
    assert len(missing) == len(ROWS) - 1 and "nan" not in missing


QUIET = """
import sys
import jax
from bench.faults import command
from bench.faults.place import Outcome
from bench.faults.table import ROWS, Row

def row(place):
    print(jax.default_backend())
    return Outcome(1, int(sys.argv[2]))

ROWS.clear()
ROWS["row"] = Row(row, 1, "")
sys.exit(command.main([f"--workdir={sys.argv[1]}", f"--page={sys.argv[1]}/page.md"]))
"""


@pytest.mark.parametrize("survived", [1, 0])
def test_it_ends_with_1_if_a_fault_was_lost_and_looks_for_no_accelerator(tmp_path, survived: int):
    """Nor says JAX then that there is none."""
    unset = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-c", QUIET, str(tmp_path), str(survived)]
    done = subprocess.run(command, env=unset, capture_output=True, text=True)
    assert done.returncode == 1 - survived and "\ncpu\n" in done.stdout
    assert done.stderr == ""
