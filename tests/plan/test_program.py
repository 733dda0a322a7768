"""The program of a plan is the one that a run makes, named by a digest of what it is."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxlm import mesh as mesh_lib
from jaxlm import run, train
from jaxlm.config import Config, DataConfig, MeshConfig, TrainConfig
from jaxlm.data.loader import Loader
from jaxlm.guard import NO_LIMITS
from jaxlm.plan import memory, program
from jaxlm.schema import ConfigError
from jaxlm.step import compile_train_step
from tests import tiny

CONFIG = Config(
    model=replace(tiny.MODEL, dropout=(("0 rows", 0.1),)),
    data=DataConfig(source="synthetic", seq_len=tiny.T),
    train=TrainConfig(batch_size=8, rows_per_device=1, end="2 steps"),
    mesh=MeshConfig(2, 2, 2),
)


@pytest.fixture(scope="module")
def lowered() -> program.Lowered:
    return program.lower(CONFIG, jax.devices())


def test_it_is_the_step_of_the_loop(lowered, tmp_path):
    """Real state, rows and controls give the same program as their shapes."""
    prepared = run.prepare(CONFIG, tmp_path)
    prepared.checkpoints.close()
    zeros = jax.tree.map(
        lambda s: jax.device_put(np.zeros(s.shape, s.dtype), s.sharding), lowered.state
    )
    rows = mesh_lib.rows_sharding(prepared.mesh)
    with Loader(prepared.corpus.train, rows, 8, 0, CONFIG.end, prepared.skips) as loader:
        batch = next(iter(loader))
    with jax.set_mesh(prepared.mesh):
        controls = train.Host(prepared).controls(batch, save=0, stop=True, limits=NO_LIMITS)
        step = compile_train_step(prepared.step, prepared.mesh, prepared.where)
        real = step.lower(zeros, batch.rows_BT, controls)
    assert real.as_text() == lowered.program.as_text()
    assert lowered.step.microbatches == 2


def test_the_digest_is_of_the_program(lowered):
    """The same again; another where the program, or what compiles it, is another."""
    assert program.lower(CONFIG, jax.devices()).digest == lowered.digest
    assert re.fullmatch("[0-9a-f]{64}", lowered.digest)
    clipped = replace(CONFIG, optim=replace(CONFIG.optim, clip_norm=2.0))
    assert program.lower(clipped, jax.devices()).digest != lowered.digest


def test_the_digest_is_of_the_compiler_and_the_target(lowered, monkeypatch):
    device = jax.devices()[0]
    digest = lambda name: program._digest(lowered.program, name, device)  # noqa: E731
    before = digest("v5p:2x2x2")
    assert digest("v5p:2x2x4") != before
    monkeypatch.setattr(program, "versions", lambda platform: {"libtpu": "0.0.51"})
    assert digest("v5p:2x2x2") != before


def test_lowering_leaves_tracebacks_as_they_were():
    before = jax.config.jax_traceback_in_locations_limit
    with program._without_locations():
        assert jax.config.jax_traceback_in_locations_limit == 0
    assert jax.config.jax_traceback_in_locations_limit == before != 0


def test_a_compiled_program():
    small = replace(
        CONFIG, model=replace(CONFIG.model, n_layers=1, dropout=()), mesh=MeshConfig(1, 2, 1)
    )
    found = program.compile(small, jax.devices()[:2])
    assert found.refusal is None and found.text.startswith("HloModule")
    assert (found.mesh_shape, found.microbatches) == ({"data": 1, "fsdp": 2, "tensor": 1}, 4)
    assert found.attention == "cpu"
    held = memory.holders(found.memory, found.state, found.batch)
    assert held.parameters == memory.parts(found.state.params)[0]
    assert held.optimizer == 2 * held.parameters + 4  # both moments, and the count of updates
    rows, controls = 8 // 2 * (tiny.T + 1) * 2, 4 + 4 + 4 + 4 + 8 * 8 + 8 + 2 * 4
    assert held.batch == rows + controls
    assert held.rest > 0
    assert sum(held[:4]) == found.memory.peak


def test_what_does_not_fit_the_mesh_is_the_errors_own(lowered):
    odd = replace(CONFIG, train=replace(CONFIG.train, batch_size=6, rows_per_device=None))
    with pytest.raises(ConfigError, match="batch_size=6 cannot be split over data x fsdp = 4"):
        program.lower(odd, jax.devices())
