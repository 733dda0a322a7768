"""What a traced program does, before any compiler."""

from collections.abc import Iterator
from typing import Any


def equations(jaxpr: Any, loops: int = 0) -> Iterator[tuple[Any, int]]:
    """Each equation, those of inner programs too, and how many scans it is inside of."""
    for equation in jaxpr.eqns:
        yield equation, loops
        inside = loops + (equation.primitive.name == "scan")
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner, inside)
