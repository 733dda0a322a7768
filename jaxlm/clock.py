"""The clock of a run is its position, the number of the next row; everything is timed by it."""


def crossed(every: int | None, before: int, after: int) -> bool:
    """Whether a multiple of `every` rows lies in (before, after]; never if None."""
    return every is not None and before // every != after // every


def phase(position: int, phases: tuple[tuple[int, float], ...]) -> float:
    """Value of the last (start, value) phase that has begun at this position; 0 before any."""
    value = 0.0
    for start, phase_value in phases:
        if position >= start:
            value = phase_value
    return value
