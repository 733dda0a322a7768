"""A rule applied to all parameters, on the device or with what it keeps in host memory.

Behind Optax's interface, `init` and `update`. The arithmetic is a function of one parameter, or of
one layer of a stacked one, so that it can be streamed from the host, and XLA fuse it into one pass.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxlm.optim.masks import stacked
from jaxlm.optim.paths import Path, Tree, flat, nested
from jaxlm.optim.rule import Now, Rule, Rules, Slot
from jaxlm.optim.stream import Leaf, from_host, on_device


class OptState(NamedTuple):
    """What an optimizer keeps."""

    updates: jax.Array
    """int32: updates so far."""
    slots: dict[str, Tree]
    """By name, trees of those parameters that have such a slot."""


@dataclass(frozen=True)
class Optimizer:
    """What to add to the parameters at each update, and what to keep for the next."""

    rules: Rules
    offload: bool = False
    """Whether the slots lie in host memory."""

    def slots(self, params: Tree) -> dict[str, dict[Path, Slot]]:
        """What is kept, by the name of the slot and the path of the parameter."""
        found: dict[str, dict[Path, Slot]] = {}
        for path, leaf in flat(params).items():
            shift = int(stacked(path))
            for name, slot in self._rule(path, leaf.ndim).slots.items():
                dims = (*range(shift), *(dim + shift for dim in slot.dims))
                found.setdefault(name, {})[path] = slot._replace(dims=dims)
        return found

    def init(self, params: Tree) -> OptState:
        """The state before the first update."""
        leaves = flat(params)
        zeros = lambda path, slot: jnp.zeros(slot.shape(leaves[path].shape), slot.dtype)  # noqa: E731
        slots = {
            name: nested({path: zeros(path, slot) for path, slot in slots.items()})
            for name, slots in self.slots(params).items()
        }
        return OptState(jnp.zeros((), jnp.int32), slots)

    def update(
        self,
        grads: Tree,
        state: OptState,
        params: Tree,
        *,
        lr: ArrayLike,
        applied: ArrayLike = True,
    ) -> tuple[Tree, OptState]:
        """What to add to the parameters, and the state after it; if not `applied`, nothing."""
        now = Now(state.updates + 1, jnp.asarray(lr), jnp.asarray(applied))
        kept = {name: flat(tree) for name, tree in state.slots.items()}
        g, p = flat(grads), flat(params)
        own = lambda path: {name: slots[path] for name, slots in kept.items() if path in slots}  # noqa: E731
        leaves = {path: Leaf(g[path], own(path), p[path]) for path in p}
        rules = {path: self._rule(path, leaf.g.ndim) for path, leaf in leaves.items()}
        found = (from_host if self.offload else on_device)(leaves, rules, now)
        slots = {
            name: nested({path: found[path][1][name] for path in slots})
            for name, slots in kept.items()
        }
        updates = nested({path: update for path, (update, _) in found.items()})
        return updates, OptState(state.updates + now.applied.astype(jnp.int32), slots)

    def _rule(self, path: Path, ndim: int) -> Rule:
        return self.rules(path, ndim - stacked(path))
