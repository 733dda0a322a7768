"""An optimizer seen from one parameter: what is kept of it, and how it is updated."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from jaxlm.optim.paths import Path


class Slot(NamedTuple):
    """A statistic of a parameter that is kept from update to update; it begins at zero."""

    dims: tuple[int, ...]
    """The parameter's dimensions that it has, in order."""
    dtype: np.dtype = np.dtype(np.float32)

    def shape(self, parameter: tuple[int, ...]) -> tuple[int, ...]:
        """Its shape, of a parameter's shape."""
        return tuple(parameter[dim] for dim in self.dims)


class Now(NamedTuple):
    """What all parameters share at one update."""

    updates: jax.Array
    """int32: updates so far, this one included."""
    lr: jax.Array
    """Learning rate, float32."""
    applied: jax.Array
    """bool: whether it is applied; if not, parameters and slots stay as they are, bit for bit."""


Slots = dict[str, jax.Array]
"""What is kept of one parameter, by the name of the slot."""

Update = Callable[[jax.Array, Slots, jax.Array, Now], tuple[jax.Array, Slots]]
"""gradient, slots, parameter, now -> what to add to the parameter, and its new slots."""


class Rule(NamedTuple):
    """The optimizer of one parameter."""

    slots: dict[str, Slot]
    """Of one layer, if the parameter is stacked."""
    update: Update
    layerwise: bool = True
    """Whether `update` is of one layer of a stacked parameter; else of all of them at once."""

    def apply(self, g: jax.Array, slots: Slots, p: jax.Array, now: Now) -> tuple[jax.Array, Slots]:
        """`update`, or nothing where `now` says so."""
        update, new = self.update(g, slots, p, now)
        kept = {name: jnp.where(now.applied, new[name], slots[name]) for name in slots}
        return jnp.where(now.applied, update, -0.0), kept  # x + -0.0 is x, for -0.0 too


Rules = Callable[[Path, int], Rule]
"""path, number of dimensions (of one layer) -> the rule of a parameter."""


def whole(ndim: int, dtype: str = "float32") -> Slot:
    """A slot in the shape of its parameter."""
    return Slot(tuple(range(ndim)), jnp.dtype(dtype))
