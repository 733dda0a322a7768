"""Parameters of all kinds that the optimizers tell apart, small."""

from typing import Any

import jax
import numpy as np

SHAPES = {
    "embedding": {"table": (16, 8)},
    "blocks": {
        "attention": {"query": {"kernel": (3, 8, 2, 3)}, "out": {"kernel": (3, 2, 3, 8)}},
        "mlp": {"up": {"kernel": (3, 8, 12)}, "down": {"kernel": (3, 12, 8)}},
        "norm": {"scale": (3, 8)},
    },
    "norm": {"scale": (8,)},
    "head": {"kernel": (8, 16)},
}
"""Three layers."""


def trees(count: int, shapes: Any = SHAPES) -> list:
    """Random trees, float32."""
    random = np.random.default_rng(0)
    make = lambda shape: random.normal(size=shape).astype(np.float32)  # noqa: E731
    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    return [jax.tree.map(make, shapes, is_leaf=is_shape) for _ in range(count)]
