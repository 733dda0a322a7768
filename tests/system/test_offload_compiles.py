"""What the compilers of TPU and GPU make of a state, and of saved values, in host memory.

Each alone, the update and the gradients: a whole step takes the TPU compiler minutes.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import pytest
from jax.sharding import Mesh

from jaxlm import mesh as mesh_lib
from jaxlm import models, optim, state
from jaxlm.config import MeshConfig, ModelConfig, OptimConfig
from jaxlm.plan import host, memory, target
from jaxlm.step import gradients
from tests import tiny

pytestmark = pytest.mark.compilers

L, D, F, T, ROWS = 24, 512, 1024, 128, 16
"""Wide enough that each device has whole tiles of a matrix: TPU turns narrower ones around."""
MODEL = ModelConfig(
    vocab_size=1024, d_model=D, n_layers=L, n_heads=4, n_kv_heads=4, d_ff=F, remat="full"
)
TARGETS = ("v5p:2x2x1", "h100:1x4")


@cache
def mesh(name: str) -> Mesh:
    return mesh_lib.make(MeshConfig(1, 4, 1), target.parse(name).devices())


def compiled(name: str, function: Callable, *arguments, out, donate=()):
    """Memory, bytes on the host besides the arguments; the program's text."""
    with jax.set_mesh(mesh(name)):
        jitted = jax.jit(function, out_shardings=out, donate_argnums=donate)
        lowered = jitted.lower(*arguments)
        if name.startswith("h100"):
            host.keep_on_host(lowered)
        program = lowered.compile()
    found = memory.of_compiled(program, mesh(name).devices.flat[0].platform)
    return found, found.host - found.host_arguments, program.as_text() or ""


def update(name: str, offload: bool):
    model, optimizer = models.build(MODEL), optim.build(OptimConfig(offload=offload))
    where = state.shardings(model, optimizer, mesh(name))
    shapes = state.abstract(model, optimizer, where)
    return compiled(
        name,
        lambda grads, opt_state, params: optimizer.update(grads, opt_state, params, lr=1.0),
        shapes.params,
        shapes.opt_state,
        shapes.params,
        out=(where.params, where.opt_state),
        donate=(0, 1),
    )


def differentiate(name: str, offload: bool):
    step = tiny.step_def(replace(MODEL, offload_activations=offload))
    where = state.shardings(step.model, step.optimizer, mesh(name))
    rows = jax.ShapeDtypeStruct(
        (4 * ROWS, T + 1), "uint16", sharding=mesh_lib.rows_sharding(mesh(name))
    )
    return compiled(
        name,
        lambda params, rows: gradients(params, step, rows, None)[0],
        state.abstract(step.model, step.optimizer, where).params,
        rows,
        out=where.params,
    )


@pytest.mark.parametrize("name", TARGETS)
def test_state_in_host_memory_passes_through_the_device(name):
    """All of it leaves, but one layer's moments, and those of table and head; in one copy."""
    moments = 2 * 4 * (L * (4 * D * D + 3 * D * F) + 2 * MODEL.padded_vocab * D) // 4
    before, *_ = update(name, offload=False)
    after, rest, text = update(name, offload=True)
    assert after.host_arguments == pytest.approx(moments, rel=0.01)
    assert rest == 0
    assert before.peak - after.peak > 0.75 * moments
    assert re.search(rf"f32\[{L},[\d,]+\]{{[^}}]*S\(5\)}} (fusion|dynamic-update-slice)-done", text)


@pytest.mark.parametrize("name", TARGETS)
def test_saved_values_in_host_memory_leave_the_device(name):
    """The stream that enters each layer, in bfloat16."""
    saved = L * ROWS * T * D * 2
    after, on_host, text = differentiate(name, offload=True)
    assert on_host == pytest.approx(saved, rel=0.01)
    assert re.search(rf"bf16\[{L},{ROWS},{T},{D}\]{{[^}}]*S\(5\)}}", text)
    if name.startswith("h100"):  # another program would take the TPU compiler another minute
        assert differentiate(name, offload=False)[0].peak - after.peak > 0.8 * saved
