"""Checks of a rule's thresholds: `ValueError` names the field, the value and what is allowed."""


def shares(rule: object, *names: str) -> None:
    """Each of these fields is between 0 and 1."""
    for name in names:
        if not 0 <= getattr(rule, name) <= 1:
            raise ValueError(f"{name}={getattr(rule, name)} must be between 0 and 1")


def at_least(rule: object, least: float, *names: str) -> None:
    """None of these fields is below `least`."""
    for name in names:
        if getattr(rule, name) < least:
            raise ValueError(f"{name}={getattr(rule, name)} must be at least {least}")


def ordered(rule: object, low: str, high: str) -> None:
    """The first of these fields is not above the second."""
    if getattr(rule, low) > getattr(rule, high):
        raise ValueError(
            f"{low}={getattr(rule, low)} is above {high}={getattr(rule, high)}: nothing would pass"
        )


def ngrams(rule: object, *names: str) -> None:
    """Each of these fields holds pairs of an n from 1 and a share."""
    for name in names:
        for n, most in getattr(rule, name):
            if n < 1 or not 0 <= most <= 1:
                raise ValueError(
                    f"{name} has ({n}, {most}); write pairs (n, most), n at least 1 and most "
                    "between 0 and 1"
                )
