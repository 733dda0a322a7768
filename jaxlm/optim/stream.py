"""Runs the rules of all parameters, with what they keep on the device or in host memory.

From the host, the stacked parameters go through the device layer by layer: the device never holds
more than one layer's slots.
"""

from typing import Any, NamedTuple

import jax

from jaxlm.optim.masks import stacked
from jaxlm.optim.paths import Path
from jaxlm.optim.rule import Now, Rule, Slots


class Leaf(NamedTuple):
    """One parameter and what belongs to it."""

    g: jax.Array
    slots: Slots
    p: jax.Array


type Found = dict[Path, tuple[jax.Array, Slots]]
"""What to add to each parameter, and its new slots."""


def on_device(leaves: dict[Path, Leaf], rules: dict[Path, Rule], now: Now) -> Found:
    """Each parameter by itself."""
    return {path: _apply(path, leaf, rules[path], now) for path, leaf in leaves.items()}


def from_host(leaves: dict[Path, Leaf], rules: dict[Path, Rule], now: Now) -> Found:
    """The same, with the slots in host memory before and after."""
    leaves = {path: leaf._replace(slots=_to_host(leaf.slots)) for path, leaf in leaves.items()}
    layered = {
        path: leaf for path, leaf in leaves.items() if stacked(path) and rules[path].layerwise
    }
    found = _layer_by_layer(layered, rules, now) if layered else {}
    for path, leaf in leaves.items():
        if path not in layered:
            here = leaf._replace(slots=_to_device(leaf.slots))
            update, slots = _apply(path, here, rules[path], now)
            found[path] = (update, _to_host(slots))
    return found


def _apply(path: Path, leaf: Leaf, rule: Rule, now: Now) -> tuple[jax.Array, Slots]:
    if stacked(path) and rule.layerwise:
        return jax.vmap(lambda g, slots, p: rule.apply(g, slots, p, now))(*leaf)
    return rule.apply(*leaf, now)


def _layer_by_layer(leaves: dict[Path, Leaf], rules: dict[Path, Rule], now: Now) -> Found:
    """Gradients turn into updates, and slots into new slots, in place."""
    params = {path: leaf.p for path, leaf in leaves.items()}
    start = {path: (leaf.g, leaf.slots) for path, leaf in leaves.items()}
    layers = next(iter(params.values())).shape[0]

    def body(i: jax.Array, found: Found) -> Found:
        layer, after = _layer((found, params), i), {}
        for path, (g, slots) in layer[0].items():
            update, slots = rules[path].apply(g, _to_device(slots), layer[1][path], now)
            after[path] = (update, _to_host(slots))
        write = lambda whole, one: jax.lax.dynamic_update_index_in_dim(whole, one, i, 0)  # noqa: E731
        return jax.tree.map(write, found, after)

    return jax.lax.fori_loop(0, layers, body, start)


def _layer(tree: Any, i: jax.Array) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), tree)


def _to_device(slots: Slots) -> Slots:
    return jax.device_put(slots, jax.memory.Space.Device)


def _to_host(slots: Slots) -> Slots:
    return jax.device_put(slots, jax.memory.Space.Host)
