"""What an optimizer keeps in host memory is what it would keep on the device, bit by bit."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import models, optim, state
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.config import OptimConfig
from jaxlm.optim import OPTIMIZERS, newton_schulz
from jaxlm.optim.optimizer import Optimizer
from jaxlm.state import TrainState, split_position
from tests import tiny
from tests.tiny import MODEL

MODEL_DEF = models.build(replace(MODEL, qk_norm=False))
TOLERANCE = {"adamw": 1e-6, "adafactor": 1e-6, "muon": 1e-4}
"""Of an update's norm."""


def build(name: str, offload: bool) -> Optimizer:
    return optim.build(OptimConfig(name=name, offload=offload, moment_dtype="bfloat16"))


def grads(seed: int) -> dict:
    random = np.random.default_rng(seed)
    make = lambda p: random.normal(size=p.shape).astype(np.float32)  # noqa: E731
    return jax.tree.map(make, MODEL_DEF.abstract())


def advance(optimizer: Optimizer, found: TrainState, seeds: list[int], where: TrainState):
    """The state after an update with random gradients for each seed; what was added last."""

    def update(found: TrainState, grads: dict) -> tuple[dict, TrainState]:
        updates, opt_state = optimizer.update(grads, found.opt_state, found.params, lr=0.1)
        return updates, found._replace(opt_state=opt_state)

    step = jax.jit(
        update, out_shardings=(where.params, where), donate_argnums=0, compiler_options=tiny.FAST
    )
    updates = {}
    for seed in seeds:
        placed = jax.device_put(grads(seed), where.params)
        updates, found = jax.block_until_ready(step(found, placed))
    return updates, found


def begin(optimizer: Optimizer, where: TrainState) -> TrainState:
    params = jax.device_put(grads(0), where.params)
    init = jax.jit(optimizer.init, out_shardings=where.opt_state, compiler_options=tiny.FAST)
    whole = where.step
    step, position = jax.device_put(np.int32(2), whole), jax.device_put(split_position(16), whole)
    return TrainState(step, position, params, init(params))


def two_updates(name: str, offload: bool, shape: tuple[int, int, int]):
    """Shardings, what the second update added, and the state after it."""
    optimizer, mesh = build(name, offload), tiny.mesh(shape)
    with jax.set_mesh(mesh):
        where = state.shardings(MODEL_DEF, optimizer, mesh)
        return where, *advance(optimizer, begin(optimizer, where), [1, 2], where)


@pytest.fixture(scope="module", params=OPTIMIZERS)
def name(request) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newton_schulz, "DTYPE", jnp.float32)  # bfloat16 could hide a mistake
        yield request.param


@pytest.fixture(scope="module")
def found(name) -> dict[bool, tuple[TrainState, dict, TrainState]]:
    """On a mesh of 1x4x2, on the device (False) and offloaded (True)."""
    return {offload: two_updates(name, offload, (1, 4, 2)) for offload in (False, True)}


def test_results_are_the_same(name, found):
    """Bit by bit, but for sums over a matrix that is split among devices, in another order."""
    (_, updates, there), (_, streamed, here) = found[False], found[True]
    if name == "adamw":
        tiny.assert_trees_equal(streamed, updates)
        tiny.assert_trees_equal(here.opt_state, there.opt_state)
    else:
        assert_close(name, (streamed, here), (updates, there))


def test_another_mesh_gives_the_same(name, found):
    _, updates, after = two_updates(name, False, (1, 1, 1))
    assert_close(name, found[False][1:], (updates, after))


def assert_close(name: str, found: tuple, expected: tuple) -> None:
    tiny.assert_trees_close(found[0], expected[0], TOLERANCE[name])
    tiny.assert_trees_close(found[1].opt_state, expected[1].opt_state, 2**-8)  # of bfloat16


def test_the_state_stays_on_the_host_and_the_counter_on_the_device(found):
    for offload, kind in ((False, "device"), (True, "pinned_host")):
        where, _, after = found[offload]
        slots = jax.tree.leaves(after.opt_state.slots)
        assert {leaf.sharding.memory_kind for leaf in slots} == {kind}
        assert after.opt_state.updates.sharding.memory_kind == "device"
        for leaf, place in zip(*map(jax.tree.leaves, (after, where)), strict=True):
            assert leaf.sharding.is_equivalent_to(place, leaf.ndim)


@pytest.mark.parametrize("offload", [False, True])
def test_a_run_resumes_with_offload_turned_on_or_off(name, found, offload, tmp_path):
    """Bit by bit, on another mesh."""
    _, _, after = found[offload]
    checkpoints = Checkpoints(tmp_path, Keep(3))
    checkpoints.save(after, 2, {})
    checkpoints.wait()
    mesh = tiny.mesh((2, 2, 2))
    other = build(name, not offload)
    with jax.set_mesh(mesh):
        there = state.shardings(MODEL_DEF, other, mesh)
        restored = checkpoints.restore(2, state.abstract(MODEL_DEF, other, there))
        checkpoints.close()
        tiny.assert_trees_equal(restored, after)
        kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(restored.opt_state.slots)}
        assert kinds == {"device" if offload else "pinned_host"}
