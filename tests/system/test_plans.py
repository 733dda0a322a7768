"""No row of the table of plans may tell of a program that a run no longer compiles."""

import pytest

from jaxlm.plan import table

pytestmark = pytest.mark.system

CASES = table.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_row_is_of_the_present_program(case):
    """Lowers, does not compile."""
    assert table.is_current(case, table.read().get(case.name)), (
        f"the row of {case.name} in {table.ROWS} is missing, or of another program, config, chip "
        f"or price: {table.pages.COMMAND}"
    )
