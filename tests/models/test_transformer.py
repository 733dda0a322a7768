"""What every kind of block must keep: causality, documents apart, the cache, and its own shapes."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import models
from jaxlm.models import BLOCKS
from jaxlm.models.block import Dropout, drop
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.schema import ConfigError
from tests import tiny
from tests.tiny import MODEL, T

LENGTHS = (5, 8, 3)
"""Three documents, T tokens in all."""


@pytest.fixture(scope="module", params=BLOCKS)
def model(request) -> ModelDef:
    return models.build(replace(MODEL, block=request.param))


@pytest.fixture(scope="module")
def params(model) -> Params:
    return tiny.init(model)


def packed() -> tuple[jax.Array, jax.Array, jax.Array]:
    """tokens [1, T], all different; segments and positions of the documents."""
    segments = np.repeat(np.arange(3), LENGTHS)
    positions = np.concatenate([np.arange(n) for n in LENGTHS])
    return tuple(
        jnp.asarray(x, jnp.int32)[None] for x in (np.arange(2, T + 2), segments, positions)
    )


def test_a_token_sees_itself_and_what_came_before_in_its_document(model, params):
    """By gradients, exactly zero elsewhere. Tokens differ: a row of the table is a place."""
    tokens, segments, positions = packed()
    direction_D = jax.random.normal(jax.random.key(1), (MODEL.d_model,))

    def outputs(table_VD: jax.Array) -> jax.Array:
        changed = {**params, "embedding": {"table": table_VD}}
        return model.hidden(changed, tokens, segments, positions)[0] @ direction_D

    slopes_TVD = jax.jit(jax.jacrev(outputs), compiler_options=tiny.FAST)(
        params["embedding"]["table"]
    )
    reach_TT = np.abs(np.asarray(slopes_TVD)[:, tokens[0]]).max(-1)
    same_TT = np.asarray(segments[0])[:, None] == np.asarray(segments[0])
    sees_TT = np.tril(same_TT)
    assert (reach_TT[sees_TT] > 0).all()
    assert (reach_TT[~sees_TT] == 0).all()


def test_packed_documents_equal_documents_alone(model, params):
    """Alone: at the start of a row, something else behind it."""
    tokens, segments, positions = packed()
    starts = np.cumsum((0, *LENGTHS))
    rows, row_segments = [tokens[0]], [segments[0]]
    row_positions = [positions[0]]
    for start, length in zip(starts[:-1], LENGTHS, strict=True):
        rows.append(jnp.roll(tokens[0], -start))
        row_segments.append((jnp.arange(T) >= length).astype(jnp.int32))
        row_positions.append(jnp.arange(T))
    hidden = jax.jit(model.hidden, compiler_options=tiny.FAST)(
        params, *map(jnp.stack, (rows, row_segments, row_positions))
    )
    for i, (start, length) in enumerate(zip(starts[:-1], LENGTHS, strict=True), start=1):
        tiny.assert_trees_close(hidden[0, start : start + length], hidden[i, :length], 1e-6)


def test_the_cache_gives_what_the_whole_row_gives(model, params):
    """5 tokens at once, then one by one, from the cache."""
    tokens = packed()[0]
    positions = jnp.arange(T)[None]
    whole = jax.jit(model.hidden, compiler_options=tiny.FAST)(
        params, tokens, jnp.zeros_like(tokens), positions
    )
    decode = jax.jit(model.decode, compiler_options=tiny.FAST)
    hidden, caches = decode(params, tokens[:, :5], positions[:, :5], model.empty_cache(1, T))
    found = [hidden]
    for t in range(5, T):
        one = slice(t, t + 1)
        hidden, caches = decode(params, tokens[:, one], positions[:, one], caches)
        found.append(hidden)
    tiny.assert_trees_close(jnp.concatenate(found, axis=1), whole, 1e-5)


def test_bfloat16_is_close_to_float32(model, params):
    half = models.build(replace(model.cfg, compute_dtype="bfloat16"))
    found, expected = (
        jax.jit(m.hidden, compiler_options=tiny.FAST)(params, *packed()) for m in (half, model)
    )
    assert (found.dtype, expected.dtype) == (jnp.bfloat16, jnp.float32)
    tiny.assert_trees_close(found.astype(jnp.float32), expected, 0.03)


def test_stored_parameters_are_float32_and_stacked_however_layers_run(model, params):
    unrolled = models.build(replace(model.cfg, layers="unroll", compute_dtype="bfloat16"))
    shapes = jax.tree.map(lambda p: (p.shape, str(p.dtype)), params)
    assert jax.tree.map(lambda p: (p.shape, str(p.dtype)), unrolled.abstract()) == shapes
    assert {leaf.shape[0] for leaf in jax.tree.leaves(params["blocks"])} == {MODEL.n_layers}
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    ranks = jax.tree.map(lambda p: p.ndim, params)
    axes = jax.tree.map(len, model.axes(), is_leaf=lambda x: isinstance(x, tuple))
    assert axes == ranks


def test_layers_start_apart(params):
    for leaf in jax.tree.leaves(params["blocks"]):
        assert (leaf == 1).all() or not (leaf[0] == leaf[1]).any()


def test_tied_embeddings_have_no_head():
    tied = models.build(replace(MODEL, tied_embeddings=True)).abstract()
    untied = models.build(MODEL).abstract()
    assert set(untied) - set(tied) == {"head"}


def test_an_unknown_block_is_refused():
    with pytest.raises(ConfigError, match=r"config.model.block='mamba': must be one of transforme"):
        models.build(replace(MODEL, block="mamba"))


def test_dropout_keeps_the_mean_and_follows_each_rows_key():
    x_BTD = jnp.ones((4, 64, 64))
    keys_B = jax.random.split(jax.random.key(0), 4)
    site = jnp.int32(3)
    found = np.asarray(drop(x_BTD, Dropout(keys_B, jnp.float32(0.25)), site))
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((found == 0).mean() - 0.25) < 0.02
    assert (found[0] != found[1]).any()
    turned = np.asarray(drop(x_BTD, Dropout(keys_B[::-1], jnp.float32(0.25)), site))
    assert (turned == found[::-1]).all()
    elsewhere = np.asarray(drop(x_BTD, Dropout(keys_B, jnp.float32(0.25)), jnp.int32(4)))
    assert (elsewhere != found).any()
    assert (np.asarray(drop(x_BTD, Dropout(keys_B, jnp.float32(0.0)), site)) == 1).all()
