"""Text from a cache equals text from the whole model, and draws are what was asked for."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import models, state
from jaxlm.errors import UserError
from jaxlm.models import BLOCKS
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.sample import Sampling, choose, generate, next_logits
from tests import tiny
from tests.tiny import MODEL

PROMPTS = [[1], [1, 7, 30, 99], [1, 50, 51], [1, 2, 3, 4, 5, 6, 7]]
GREEDY = Sampling(max_tokens=8, temperature=0)
NEVER = (500,)
"""A stop token that no model here can choose."""


@pytest.fixture(scope="module", params=BLOCKS)
def model(request) -> ModelDef:
    return models.build(replace(MODEL, block=request.param))


@pytest.fixture(scope="module")
def params(model) -> Params:
    """With a head whose columns of padding would win."""
    params = tiny.init(model)
    head = params["head"]["kernel"].copy()
    head[:, MODEL.vocab_size :] = 9 * head[:, :1]
    return {**params, "head": {"kernel": head}}


@pytest.fixture(scope="module")
def greedy(model, params) -> list[list[int]]:
    return generate(model, params, PROMPTS, GREEDY, NEVER)


def test_cached_greedy_text_equals_the_uncached_model(model, params, greedy):
    """Each token is the likeliest of a model that reads everything anew."""
    longest = max(map(len, PROMPTS)) + GREEDY.max_tokens
    tokens_BT = np.zeros((len(PROMPTS), longest), np.int32)
    for row, prompt, new in zip(tokens_BT, PROMPTS, greedy, strict=True):
        assert len(new) == GREEDY.max_tokens
        row[: len(prompt) + len(new)] = prompt + new
    positions_BT = np.broadcast_to(np.arange(longest), tokens_BT.shape)
    hidden_BTD = jax.jit(model.hidden)(params, tokens_BT, np.zeros_like(tokens_BT), positions_BT)
    logits_BTV = np.stack([next_logits(model, params, h[:, None]) for h in hidden_BTD])
    best_BT = logits_BTV.argmax(-1)
    for row, prompt, new in zip(best_BT, PROMPTS, greedy, strict=True):
        assert row[len(prompt) - 1 :][: len(new)].tolist() == new


def test_a_row_does_not_depend_on_the_others_or_on_the_mesh(model, params, greedy):
    """3 rows on a mesh that splits a batch 4 ways: what is missing is filled up and dropped."""
    assert generate(model, params, PROMPTS[1:2], GREEDY, NEVER) == greedy[1:2]
    mesh = tiny.mesh((2, 2, 2))
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, state.param_shardings(model, mesh))
        assert generate(model, placed, PROMPTS[:3], GREEDY, NEVER) == greedy[:3]


def test_text_ends_before_the_first_stop_token(model, params, greedy):
    """Rows stop each by itself: what one has said does not end another."""
    stop = greedy[1][3]
    cut = [new[: new.index(stop)] if stop in new else new for new in greedy]
    assert len(cut[1]) <= 3
    assert generate(model, params, PROMPTS, GREEDY, (500, stop)) == cut


def test_a_seed_gives_its_text_again(model, params):
    """Rows with the same prompt differ; padding of the vocabulary is never drawn."""
    how = Sampling(max_tokens=8, temperature=3.0, seed=5)
    found = generate(model, params, [[1, 7]] * 3, how, NEVER)
    assert found[0] != found[1] != found[2]
    assert max(map(max, found)) < MODEL.vocab_size
    assert generate(model, params, [[1, 7]] * 2, how, NEVER) == found[:2]
    assert generate(model, params, [[1, 7]] * 3, replace(how, seed=6), NEVER) != found


@pytest.mark.parametrize(
    ("prompts", "message"), [([[1], []], "a prompt is empty"), ([], "a prompt is empty")]
)
def test_an_empty_prompt_is_refused(model, params, prompts, message):
    with pytest.raises(UserError, match=message):
        generate(model, params, prompts, GREEDY, NEVER)


P_V = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
DRAWS = 4000


def shares(sampling: Sampling) -> np.ndarray:
    """How often each of `P_V` is drawn; the ids are shuffled on the way in and back."""
    order = np.array([3, 0, 4, 1, 2])
    logits_BV = jnp.broadcast_to(jnp.log(jnp.asarray(P_V[order], jnp.float32)), (DRAWS, 5))
    drawn = choose(logits_BV, jax.random.split(jax.random.key(0), DRAWS), sampling)
    assert drawn.dtype == jnp.int32
    return np.bincount(order[np.asarray(drawn)], minlength=5) / DRAWS


@pytest.mark.parametrize(
    ("sampling", "weights"),
    [
        (Sampling(), P_V),
        (Sampling(temperature=0.5), P_V**2),
        (Sampling(temperature=2.0), P_V**0.5),
        (Sampling(temperature=0), [1, 0, 0, 0, 0]),
        (Sampling(top_k=2), P_V * [1, 1, 0, 0, 0]),
        (Sampling(top_k=9), P_V),
        (Sampling(top_p=0.75), P_V * [1, 1, 1, 0, 0]),  # 0.4 + 0.3 do not reach it
        (Sampling(top_p=0.65), P_V * [1, 1, 0, 0, 0]),
        (Sampling(top_p=0.01), [1, 0, 0, 0, 0]),
        (Sampling(top_p=1e-300), [1, 0, 0, 0, 0]),
        (Sampling(temperature=0.001), [1, 0, 0, 0, 0]),
        (Sampling(top_k=3, top_p=0.5), P_V * [1, 1, 0, 0, 0]),  # of the three: 0.47, 0.35, 0.18
        (Sampling(temperature=0.5, top_p=0.6), P_V**2 * [1, 1, 0, 0, 0]),  # after temperature
    ],
)
def test_draws_follow_the_distribution(sampling, weights):
    expected = np.asarray(weights) / np.sum(weights)
    found = shares(sampling)
    assert (found[expected == 0] == 0).all()
    np.testing.assert_allclose(found, expected, atol=0.03)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_tokens": 0}, "--max-tokens=0: must be in [1, 1048576]"),
        ({"max_tokens": 10**12}, "--max-tokens=1000000000000: must be in [1, 1048576]"),
        ({"temperature": -1.0}, "--temperature=-1.0: must be 0 or in [0.001, 1000]"),
        ({"temperature": math.nan}, "--temperature=nan: must be 0 or in [0.001, 1000]"),
        ({"temperature": math.inf}, "--temperature=inf: must be 0 or in [0.001, 1000]"),
        ({"temperature": 1e-300}, "--temperature=1e-300: must be 0 or in [0.001, 1000]"),
        ({"top_k": -1}, "--top-k=-1: must not be below 0"),
        ({"seed": 2**32}, "--seed=4294967296: must be in [0, 2**32)"),
        ({"top_p": 0.0}, "--top-p=0.0: must be above 0 and at most 1"),
        ({"top_p": 1.5}, "--top-p=1.5: must be above 0 and at most 1"),
    ],
)
def test_wrong_sampling_is_refused(wrong, message):
    with pytest.raises(UserError) as error:
        replace(Sampling(), **wrong)
    assert str(error.value) == message
