"""Learning rate as a function of the position, on the host, in integers until the last division.

A schedule is asked at the position *after* a step, so that the warm-up never starts at zero and
the last step reaches the final value exactly.
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class Span(NamedTuple):
    """The lengths that shape a schedule, in rows."""

    warmup: int
    decay: int
    end: int


def cosine(position: int, span: Span, final: float) -> float:
    """Linear warm-up to 1, then half a cosine to `final` at the end."""
    if position < span.warmup:
        return position / span.warmup
    left = max(span.end - position, 0)
    length = span.end - span.warmup
    if left == 0 or length == 0:
        return final if length else 1.0
    return final + (1 - final) * 0.5 * (1 - math.cos(math.pi * left / length))


def wsd(position: int, span: Span, final: float) -> float:
    """Linear warm-up to 1, stable, then linear decay to `final` over the last `decay` rows."""
    if position < span.warmup:
        return position / span.warmup
    left = max(span.end - position, 0)
    if left >= span.decay:
        return 1.0
    return final + (1 - final) * (left / span.decay)


def constant(position: int, span: Span, final: float) -> float:
    """Linear warm-up to 1, then 1; `final` and `decay` are not used."""
    return min(position / span.warmup, 1.0) if span.warmup else 1.0


SCHEDULES: dict[str, Callable[[int, Span, float], float]] = {
    "cosine": cosine,
    "wsd": wsd,
    "constant": constant,
}
