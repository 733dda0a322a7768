"""Prices: each with its day and source, old ones told, the user's own first."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from jaxlm.hardware import CHIPS
from jaxlm.plan import prices
from jaxlm.schema import ConfigError


@pytest.mark.parametrize("chip", prices.table())
def test_a_price_has_its_day_and_source(chip):
    price = prices.table()[chip]
    assert chip in CHIPS
    assert price.on_demand is not None and price.spot is not None
    assert 0 < price.spot < price.on_demand < 20
    assert price.read is not None and date(2026, 1, 1) < price.read
    assert price.region and "/" in price.source


def test_an_old_price_is_told():
    price = prices.table()["h100"]
    assert price.read is not None
    fresh = price.note(price.read + timedelta(days=prices.STALE_DAYS))
    assert fresh == f"{price.region}, read {price.read}"
    old = price.note(price.read + timedelta(days=prices.STALE_DAYS + 1))
    assert old == f"{fresh}, 181 DAYS AGO: look it up, and give --price"


def test_the_users_price_comes_first():
    given = prices.of("h100", on_demand=2.0, spot=1.0)
    assert given is not None and (given.on_demand, given.spot) == (2.0, 1.0)
    assert given.note(date(2040, 1, 1)) == "as given"
    assert prices.of("h100") == prices.table()["h100"]
    assert prices.of("7x") is None and prices.of("7x", spot=3.0) == replace(
        given, on_demand=None, spot=3.0
    )


def test_what_the_user_does_not_give_is_the_tables():
    table = prices.table()["h100"]
    spot, on_demand = prices.of("h100", spot=1.0), prices.of("h100", on_demand=2.0)
    assert spot is not None and (spot.on_demand, spot.spot) == (table.on_demand, 1.0)
    assert on_demand is not None and (on_demand.on_demand, on_demand.spot) == (2.0, table.spot)
    assert table.read is not None
    assert spot.note(table.read) == f"spot as given; on demand {table.note(table.read)}"
    assert on_demand.note(table.read) == f"on demand as given; spot {table.note(table.read)}"


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan")])
def test_a_price_is_a_price(price):
    with pytest.raises(ConfigError, match=r"--spot-price=.*must be above 0"):
        prices.of("h100", spot=price)
