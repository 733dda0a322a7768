"""Muon's matrices travel whole, each to one device of the fsdp axis and back, never together."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import mesh as mesh_lib
from jaxlm import models, optim, state
from jaxlm.config import MeshConfig, ModelConfig, OptimConfig
from jaxlm.optim.masks import hidden_matrix
from jaxlm.optim.paths import flat
from jaxlm.plan import target, walk

pytestmark = pytest.mark.compilers

LAYERS, FSDP, TENSOR = 6, 4, 2
FILLED = 8
"""Layers, filled up to a multiple of the fsdp axis."""
MODEL = ModelConfig(
    vocab_size=1024, d_model=512, n_layers=LAYERS, n_heads=8, n_kv_heads=4, d_ff=1024
)
SMALL = 2**16
"""Bytes below which nothing is judged: norms of matrices. The smallest has 2**17 elements."""


@pytest.mark.parametrize("name", ["v5p:2x2x2", "h100:1x8"])
def test_what_an_update_moves(name):
    """bfloat16, once each way, over fsdp; what tensor parallelism adds stays on its own axis."""
    mesh = mesh_lib.make(MeshConfig(1, FSDP, TENSOR), target.parse(name).devices())
    model, optimizer = models.build(MODEL), optim.build(OptimConfig(name="muon"))
    where = state.shardings(model, optimizer, mesh)
    shapes = state.abstract(model, optimizer, where)
    with jax.set_mesh(mesh):
        update = jax.jit(
            lambda grads, opt_state, params: optimizer.update(grads, opt_state, params, lr=1.0),
            out_shardings=(where.params, where.opt_state),
        )
        compiled = update.lower(shapes.params, shapes.opt_state, shapes.params).compile()
    text = compiled.as_text()
    assert text
    moved = walk.count(text, dict(mesh.shape)).collectives
    over_fsdp = [c for c in moved if "fsdp" in c.axes and c.payload_bytes > SMALL]
    assert {c.kind for c in over_fsdp} == {"all-to-all"}
    share = sum(
        FILLED * p.size // LAYERS * jnp.dtype(jnp.bfloat16).itemsize // (FSDP * TENSOR)
        for path, p in flat(model.abstract()).items()
        if hidden_matrix(path)
    )
    least = 2 * share * (FSDP - 1) / FSDP
    np.testing.assert_allclose(sum(c.wire_bytes * c.count for c in over_fsdp), least, rtol=0.1)
