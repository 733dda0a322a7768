"""No row of the table of plans may tell of a program that a run no longer compiles."""

import pytest

from jaxlm.plan import table

pytestmark = pytest.mark.system

KEPT = table.read()
CASES = [case for case in table.cases() if case.name in KEPT]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_row_is_of_the_present_program(case):
    """Lowers, does not compile."""
    assert table.is_current(case, KEPT[case.name]), (
        f"the row of {case.name} in {table.ROWS} is of another program, config, chip or price: "
        f"{table.pages.COMMAND}"
    )
