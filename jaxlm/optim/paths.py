"""Nested dicts of parameters as flat ones, by the names from the root to a leaf."""

from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

type Path = tuple[str, ...]
type Tree = dict[str, Any]


def flat(tree: Tree) -> dict[Path, Any]:
    """The leaves by path."""
    return flatten_dict(tree)  # pyright: ignore[reportReturnType]


def nested(leaves: dict[Path, Any]) -> Tree:
    """The tree of leaves by path."""
    return unflatten_dict(leaves)
