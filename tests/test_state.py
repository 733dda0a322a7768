"""The state: the same beginning on every mesh, in its place; and the position's two halves."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxlm import models, optim, state
from jaxlm.config import OptimConfig
from jaxlm.state import TrainState, join_position, split_position
from tests import tiny
from tests.tiny import MESHES, MODEL

OPTIMIZER = optim.build(OptimConfig())
ONE_LAYER = replace(MODEL, n_layers=1)


@pytest.fixture(scope="module")
def beginnings() -> dict[tuple[int, int, int], TrainState]:
    """As a run makes them, on one device and on eight."""
    model, found = models.build(ONE_LAYER), {}
    for shape in ((1, 1, 1), (2, 2, 2)):
        mesh = tiny.mesh(shape)
        with jax.set_mesh(mesh):
            where = state.shardings(model, OPTIMIZER, mesh)
            found[shape] = state.init(model, OPTIMIZER, 0, where)
    return found


def test_a_run_begins_with_the_same_bits_on_every_mesh(beginnings):
    tiny.assert_trees_equal(beginnings[2, 2, 2], beginnings[1, 1, 1])


def test_the_size_of_a_state_counts_no_copies(beginnings):
    """AdamW has two more numbers a parameter; step, position and updates take 16 bytes."""
    parameters = sum(array.size for array in jax.tree.leaves(beginnings[1, 1, 1].params))
    for found in beginnings.values():
        assert state.size(found) == 12 * parameters + 16


@pytest.mark.parametrize("tied", [False, True])
def test_initial_parameters_are_bitwise_equal_on_every_mesh(tied):
    model = models.build(replace(MODEL, tied_embeddings=tied))
    expected = tiny.init(model)
    for shape in MESHES[1:]:
        mesh = tiny.mesh(shape)
        init = jax.jit(
            model.init,
            out_shardings=state.param_shardings(model, mesh),
            compiler_options=tiny.FAST,
        )
        with jax.set_mesh(mesh):
            tiny.assert_trees_equal(init(jax.random.key(0)), expected)


def test_the_compilers_effort_does_not_matter(beginnings):
    tiny.assert_trees_equal(beginnings[1, 1, 1].params, tiny.init(models.build(ONE_LAYER)))


def test_every_leaf_lies_where_the_shardings_say(beginnings):
    model, mesh = models.build(ONE_LAYER), tiny.mesh((2, 2, 2))
    where = state.shardings(model, OPTIMIZER, mesh)
    template = state.abstract(model, OPTIMIZER, where)
    found = beginnings[2, 2, 2]
    for leaf, place, form in zip(*map(jax.tree.leaves, (found, where, template)), strict=True):
        assert leaf.sharding.is_equivalent_to(place, leaf.ndim)
        assert (leaf.shape, leaf.dtype, form.sharding) == (form.shape, form.dtype, place)
    table = found.params["embedding"]["table"]
    assert {shard.data.shape for shard in table.addressable_shards} == {(128, 32 // 4)}


def test_parameters_start_with_their_spread(beginnings):
    """normal(0, 1 / sqrt(fan-in)), less by sqrt(2 layers) into the residual stream."""
    params = jax.device_get(beginnings[1, 1, 1].params)
    mlp = params["blocks"]["mlp"]
    assert abs(mlp["gate"]["kernel"].std() * 32**0.5 - 1) < 0.1
    assert abs(mlp["down"]["kernel"].std() * (2 * 48) ** 0.5 - 1) < 0.1
    assert abs(params["embedding"]["table"].std() * 32**0.5 - 1) < 0.1
    assert (params["norm"]["scale"] == 1).all()


def test_a_state_begins_at_zero(beginnings):
    start = beginnings[1, 1, 1]
    assert (int(start.step), join_position(start.position)) == (0, 0)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(start.opt_state))


@pytest.mark.parametrize("position", [0, 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63])
def test_a_position_survives_its_halves(position):
    halves = split_position(position)
    assert halves.dtype == np.uint32
    assert join_position(halves) == join_position(jax.numpy.asarray(halves)) == position
