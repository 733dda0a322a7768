"""What every optimizer must keep: downhill, on any mesh, layer by layer, in the bytes it says."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import models, optim, state
from jaxlm.config import OptimConfig
from jaxlm.optim import OPTIMIZERS
from jaxlm.optim.masks import decays, hidden_matrix
from jaxlm.optim.paths import flat
from jaxlm.schema import ConfigError
from tests import tiny
from tests.optim.leaves import trees
from tests.tiny import MODEL

STEPS = 300


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_goes_downhill(name):
    """To the least of a quadratic, in a few hundred steps."""
    target, params = trees(2)
    optimizer = optim.build(OptimConfig(name=name, weight_decay=0.0))

    def update(carry, lr):
        params, opt_state = carry
        grads = jax.tree.map(jnp.subtract, params, target)
        updates, opt_state = optimizer.update(grads, opt_state, params, lr=lr)
        return (jax.tree.map(jnp.add, params, updates), opt_state), None

    rates = jnp.linspace(0.2, 0.0, STEPS, endpoint=False)
    run = jax.jit(lambda carry: jax.lax.scan(update, carry, rates)[0])
    params, opt_state = run((params, optimizer.init(params)))
    assert opt_state.updates == STEPS
    tiny.assert_trees_close(params, target, 0.05)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_layer_is_updated_as_if_it_were_alone(name):
    """So that layers may be streamed, spread over devices, and stacked at all."""
    params, *grads = trees(3)
    optimizer = optim.build(OptimConfig(name=name))

    @jax.jit
    def run(params, grads):
        opt_state = optimizer.init(params)
        for g in grads:
            updates, opt_state = optimizer.update(g, opt_state, params, lr=jnp.float32(1))
        return updates

    second = lambda tree: {**tree, "blocks": jax.tree.map(lambda x: x[1:2], tree["blocks"])}  # noqa: E731
    together, alone = run(params, grads), run(second(params), [second(g) for g in grads])
    tiny.assert_trees_close(alone, second(together), 1e-2 if name == "muon" else 1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_gradient_moves_nothing_but_by_decay(name):
    """And gives no NaN: the rows of tokens that are in no batch, the padding of the vocabulary."""
    cfg = OptimConfig(name=name, weight_decay=0.1)
    optimizer, (params,) = optim.build(cfg), trees(1)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params, lr=jnp.float32(0.5))
    for path, p in flat(params).items():
        expected = -0.5 * 0.1 * p if decays(path) else np.zeros_like(p)
        np.testing.assert_allclose(flat(updates)[path], expected, rtol=1e-6)


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_that_is_not_applied_changes_nothing(name, offload):
    """Bit for bit, whatever the gradients are; the next one is as if it had not been tried."""
    params, first, second = trees(3)
    params = jax.tree.map(lambda p: jnp.asarray(p).at[..., :1].set(-0.0), params)
    spoilt = jax.tree.map(lambda g: jnp.full_like(g, jnp.nan), first)
    optimizer = optim.build(OptimConfig(name=name, weight_decay=0.1, offload=offload))

    @jax.jit
    def update(grads, opt_state, params, applied):
        updates, opt_state = optimizer.update(grads, opt_state, params, lr=0.1, applied=applied)
        return jax.tree.map(jnp.add, params, updates), opt_state

    begun = update(first, optimizer.init(params), params, True)
    left = update(spoilt, begun[1], begun[0], False)
    assert_same_bits(left, begun)
    expected, found = (update(second, s, p, True) for p, s in (begun, left))
    assert_same_bits(found, expected)
    assert found[1].updates == 2


def assert_same_bits(found, expected):
    for (path, one), other in zip(
        jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_lies_with_its_parameter(name):
    """Each statistic is split along the dimensions that it has, as the parameter is."""
    model, optimizer = models.build(MODEL), optim.build(OptimConfig(name=name))
    mesh = tiny.mesh((2, 2, 2))
    where = state.shardings(model, optimizer, mesh)
    shapes, places = flat(model.abstract()), flat(where.params)
    for slot_name, slots in optimizer.slots(model.abstract()).items():
        kept = jax.eval_shape(optimizer.init, model.abstract()).slots[slot_name]
        for path, slot in slots.items():
            assert flat(kept)[path].shape == tuple(shapes[path].shape[d] for d in slot.dims)
            found = flat(where.opt_state.slots[slot_name])[path]
            spec = (*places[path].spec, *(None,) * len(shapes[path].shape))
            assert tuple(found.spec) == tuple(spec[d] for d in slot.dims)
    assert jax.tree.structure(jax.eval_shape(optimizer.init, model.abstract())) == (
        jax.tree.structure(where.opt_state)
    )


def bytes_a_parameter(cfg: OptimConfig) -> tuple[float, float]:
    """Of the matrices of the layers, and of all else, in a model of the usual proportions."""
    model = models.build(replace(MODEL, d_model=1024, d_ff=2816, vocab_size=8192)).abstract()
    kept = jax.eval_shape(optim.build(cfg).init, model)
    found = []
    for matrix in (True, False):
        paths = [path for path in flat(model) if hidden_matrix(path) == matrix]
        slots = [flat(tree) for tree in kept.slots.values()]
        used = sum(s[p].size * s[p].dtype.itemsize for s in slots for p in paths if p in s)
        found.append(used / sum(flat(model)[p].size for p in paths))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("name", "b1", "dtype", "matrices", "rest"),
    [
        ("adamw", 0.9, "float32", 8, 8),
        ("adamw", 0.9, "bfloat16", 6, 6),
        ("adafactor", 0.9, "float32", 4, 4),
        ("adafactor", 0.9, "bfloat16", 2, 2),
        ("adafactor", 0.0, "float32", 0, 0),
        ("muon", 0.9, "float32", 4, 8),
        ("muon", 0.9, "bfloat16", 2, 6),
    ],
)
def test_bytes_a_parameter_are_as_documented(name, b1, dtype, matrices, rest):
    """In `OptimConfig.name`, and in docs/memory.md."""
    found = bytes_a_parameter(OptimConfig(name=name, b1=b1, moment_dtype=dtype))
    np.testing.assert_allclose(found, (matrices, rest), atol=0.02)


def test_every_optimizer_has_its_bytes_documented():
    assert set(OPTIMIZERS) == {"adamw", "adafactor", "muon"}  # new: a line in the test above


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_bfloat16_moment_is_the_rounded_one(name):
    """The arithmetic stays float32: the first update is the same."""
    params, g = trees(2)
    found = {}
    for dtype in ("float32", "bfloat16"):
        optimizer = optim.build(OptimConfig(name=name, moment_dtype=dtype))
        found[dtype] = jax.jit(optimizer.update)(g, optimizer.init(params), params, lr=1.0)
    tiny.assert_trees_close(found["bfloat16"][0], found["float32"][0], 1e-6)
    moments = {dtype: after.slots["mu"] for dtype, (_, after) in found.items()}
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(moments["bfloat16"]))
    tiny.assert_trees_close(moments["bfloat16"], moments["float32"], 2**-8)


def test_an_unknown_optimizer_is_refused():
    known = ", ".join(OPTIMIZERS)
    with pytest.raises(ConfigError, match=rf"config.optim.name='lion': must be one of {known}$"):
        optim.build(OptimConfig(name="lion"))
