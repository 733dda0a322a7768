"""Checks of a config's fields: `ValueError` names the field, the value and what is allowed."""

from jaxlm.data.shares import WEIGHTS, is_weight


def shares(config: object, *names: str) -> None:
    """Each of these fields is between 0 and 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{name}={getattr(config, name)} must be between 0 and 1")


def at_least(config: object, least: float, *names: str) -> None:
    """None of these fields is below `least`."""
    for name in names:
        if getattr(config, name) < least:
            raise ValueError(f"{name}={getattr(config, name)} must be at least {least}")


def weight(name: str, value: float) -> None:
    """This field is a weight that can be reckoned with."""
    if not is_weight(value):
        raise ValueError(f"{name}={value} must be {WEIGHTS}")


def ordered(config: object, low: str, high: str) -> None:
    """The first of these fields is not above the second."""
    least, most = getattr(config, low), getattr(config, high)
    if least > most:
        raise ValueError(f"{low}={least} is above {high}={most}: nothing would pass")


def ngrams(config: object, *names: str) -> None:
    """Each of these fields holds pairs of an n from 1 and a share."""
    for name in names:
        for n, most in getattr(config, name):
            if n < 1 or not 0 <= most <= 1:
                raise ValueError(
                    f"{name} has ({n}, {most}); write pairs (n, most), n at least 1 and most "
                    "between 0 and 1"
                )
