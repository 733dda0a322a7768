"""Sums over a batch, taken a microbatch at a time in each replica, and then once over replicas."""

from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm import mesh as mesh_lib


def accumulate[T](
    function: Callable[[Any, Any], T], shared: Any, batch: Any, microbatches: int
) -> T:
    """The sum of `function(shared, part)` over the parts of a batch, a tree of arrays [B, ...].

    `function` gives float32 arrays and is called inside of the `data` axis: each replica sums what
    its own rows give. What a replica's sum costs on the slow links is one all-reduce, whatever the
    number of microbatches; left to the compiler it would be one for each.
    """
    if mesh_lib.sizes_in_force().get("data", 1) == 1:
        return _over_microbatches(function, shared, batch, microbatches)

    def replica(shared: Any, own: Any) -> T:
        return jax.lax.psum(_over_microbatches(function, shared, own, microbatches), "data")

    return jax.shard_map(
        replica,
        in_specs=(P(), P("data")),
        out_specs=P(),
        axis_names={"data"},
        check_vma=False,  # it would sum the gradient of `shared` inside of the loop
    )(shared, batch)


def _over_microbatches[T](
    function: Callable[[Any, Any], T], shared: Any, batch: Any, microbatches: int
) -> T:
    if microbatches == 1:
        return function(shared, batch)

    def body(total: T, part: Any) -> tuple[T, None]:
        return jax.tree.map(jnp.add, total, function(shared, part)), None

    parts = jax.tree.map(lambda x: _split(x, microbatches), batch)
    shapes = jax.eval_shape(function, shared, jax.tree.map(lambda x: x[0], parts))
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.scan(body, start, parts)[0]


def _split(x: jax.Array, microbatches: int) -> jax.Array:
    """[B, ...] -> [microbatches, b, ...], each device keeping its own rows."""
    ways = mesh_lib.batch_ways()
    rows = x.shape[0] // (ways * microbatches)
    x = x.reshape(ways, microbatches, rows, *x.shape[1:]).swapaxes(0, 1)
    return x.reshape(microbatches, ways * rows, *x.shape[3:])
