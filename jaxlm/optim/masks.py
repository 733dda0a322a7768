"""Which parameters weight decay leaves alone."""

NO_DECAY = frozenset({"scale", "table"})
"""Norm scales and embedding tables, by the last name of their path."""


def decays(path: tuple) -> bool:
    """Whether the parameter at this tree path is decayed."""
    return path[-1].key not in NO_DECAY
