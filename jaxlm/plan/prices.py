"""Dollars per chip and hour, on demand and on the spot market, each with its day and its source."""

import functools
import tomllib
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from jaxlm.schema import ConfigError

FILE = Path(__file__).with_name("prices.toml")

STALE_DAYS = 180
"""After so many days a plan says that the price is old."""


@dataclass(frozen=True)
class Price:
    """Of one chip for an hour, in dollars; None where it is not known."""

    on_demand: float | None
    spot: float | None
    region: str
    source: str
    read: date | None = None
    """When the source was read; None for a price that the user gave."""

    def note(self, today: date) -> str:
        """Where the price comes from, and whether it is old."""
        if self.read is None:
            return self.region
        age = (today - self.read).days
        old = f", {age} DAYS AGO: look it up, and give --price" if age > STALE_DAYS else ""
        return f"{self.region}, read {self.read}{old}"


@functools.cache
def table() -> dict[str, Price]:
    """Prices by chip, as in `jaxlm.hardware.CHIPS`."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {chip: Price(**row) for chip, row in rows.items()}


def of(chip: str, on_demand: float | None = None, spot: float | None = None) -> Price | None:
    """The price of a chip: what the user gives, the table's for the rest; None if neither has one.

    Raises `ConfigError` for a price that is none.
    """
    for flag, value in (("--price", on_demand), ("--spot-price", spot)):
        if value is not None and not 0 < value < 1e4:
            raise ConfigError(f"{flag}={value:g}: dollars per chip and hour; must be above 0")
    known = table().get(chip)
    if on_demand is None and spot is None:
        return known
    if known is None or (on_demand is not None and spot is not None):
        return Price(on_demand, spot, "as given", "the command line")
    if spot is None:
        region = f"on demand as given; spot {known.region}"
        return replace(known, on_demand=on_demand, region=region)
    return replace(known, spot=spot, region=f"spot as given; on demand {known.region}")
