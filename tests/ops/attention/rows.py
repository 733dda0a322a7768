"""Packed rows to try kernels on: q, k, v, a gradient of the output, and the documents."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from jaxlm.ops.attention import Attend, reference

LENGTHS = ((40, 1, 87, 128), (200, 31, 25), (256,), (13,) * 19 + (9,))
"""Of the documents of each row, in parts of 256. The last of a row may be PAD, and the first may be
of the row before: both are documents like any other to a kernel."""


class Rows(NamedTuple):
    """Inputs of an attention; B = 4 rows."""

    q_BTHK: jax.Array
    k_BTNK: jax.Array
    v_BTNK: jax.Array
    d_out_BTHK: jax.Array
    segments_BT: jax.Array


def make(seq_len: int, heads: int, kv_heads: int, head_size: int, dtype: str) -> Rows:
    """Rows of documents, seq_len / 256 times as long as `LENGTHS` says."""
    random = np.random.default_rng(0)
    q, k, v, d_out = (
        jnp.asarray(random.normal(0, 1, (len(LENGTHS), seq_len, n, head_size)), dtype)
        for n in (heads, kv_heads, kv_heads, heads)
    )
    rows = []
    for row, lengths in enumerate(LENGTHS):
        edges = np.cumsum(lengths) * seq_len // 256
        # Numbers begin at 0 where the row begins inside a document, at 1 where it begins one.
        rows.append(np.searchsorted(edges, np.arange(seq_len), side="right") + row % 2)
    return Rows(q, k, v, d_out, jnp.asarray(np.stack(rows), jnp.int32))


def value_and_gradients(make: Callable[[jax.Array], Attend], rows: Rows) -> tuple[jax.Array, ...]:
    """(out, dq, dk, dv) of a kernel."""
    out, pull = jax.vjp(make(rows.segments_BT), rows.q_BTHK, rows.k_BTNK, rows.v_BTNK)
    return out, *pull(rows.d_out_BTHK)


def expected(rows: Rows) -> tuple[jax.Array, ...]:
    """The same of the reference, in float32."""
    wide = Rows(*(x.astype(jnp.float32) for x in rows[:4]), rows.segments_BT)
    return jax.jit(value_and_gradients, static_argnums=0)(reference.make, wide)
