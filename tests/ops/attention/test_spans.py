"""Spans against a loop over the tokens."""

import numpy as np
from jax import numpy as jnp

from jaxlm.ops.attention import spans


def test_every_token_knows_where_its_document_begins_and_ends():
    segments_BT = np.array(
        [[0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 1, 3], [1, 1, 1, 2, 3, 3]]
    )
    starts, ends = (f(jnp.asarray(segments_BT)) for f in (spans.starts, spans.ends))
    assert (starts.dtype, ends.dtype) == (jnp.int32, jnp.int32)
    for row, start, end in zip(segments_BT, starts, ends, strict=True):
        for t, segment in enumerate(row):
            own = np.flatnonzero(row == segment)
            assert (start[t], end[t]) == (own[0], own[-1] + 1)
