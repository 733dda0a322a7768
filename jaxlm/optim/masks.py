"""What the optimizers must know of a parameter, from its path alone."""

from jaxlm.optim.paths import Path

NO_DECAY = frozenset({"scale", "table"})
"""Norm scales and embedding tables, by the last name of their path."""

STACK = "blocks"
"""The parameters of the layers, stacked along their first dimension."""

TWO_INPUT_DIMS = frozenset({"out"})
"""Kernels [heads, head_dim, embed], by the name before the last; others have one input."""


def decays(path: Path) -> bool:
    """Whether the parameter is decayed."""
    return path[-1] not in NO_DECAY


def stacked(path: Path) -> bool:
    """Whether the first dimension of the parameter is the layer."""
    return path[0] == STACK


def input_dims(path: Path) -> int:
    """How many dimensions of one layer's matrix come from its input; 0 if it is no matrix."""
    if path[-1] == "scale":
        return 0
    return 2 if path[-2] in TWO_INPUT_DIMS else 1


def hidden_matrix(path: Path) -> bool:
    """Whether the parameter is a matrix between hidden layers: no table, head or norm."""
    return stacked(path) and input_dims(path) > 0
