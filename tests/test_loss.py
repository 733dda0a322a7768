"""Both forms of the loss against float64 numpy; shapes as in `jaxlm.loss`."""

import math
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import loss
from jaxlm.config import LossConfig
from jaxlm.schema import ConfigError
from tests import tiny

B, T, D, V = 4, 8, 16, 256
VOCAB = 200
Z_LOSS = 0.01
AXES = ("embed", "vocab")
SHAPES = ((B, T, D), (D, V))


@pytest.fixture(scope="module")
def case():
    """hidden, kernel, targets (the last real id among them), weights (a row of zeros too)."""
    random = np.random.default_rng(0)
    hidden_BTD, kernel_DV = (random.normal(0, 1, shape).astype(np.float32) for shape in SHAPES)
    targets_BT = random.integers(0, VOCAB, (B, T)).astype(np.int32)
    targets_BT[0, 0] = VOCAB - 1
    weights_BT = (random.random((B, T)) < 0.7).astype(np.float32)
    weights_BT[1] = 0
    return hidden_BTD, kernel_DV, targets_BT, weights_BT


def objective(hidden_BTD, kernel_DV, targets_BT, weights_BT, blocks):
    tokens = loss.token_loss(hidden_BTD, kernel_DV, AXES, targets_BT, VOCAB, blocks)
    sums = loss.sums(tokens, weights_BT, LossConfig(z_loss=Z_LOSS))
    return sums.loss, sums


def differentiate(blocks):
    """((loss, sums), (gradient of hidden, of kernel))"""

    def of(hidden_BTD, kernel_DV, targets_BT, weights_BT):
        return objective(hidden_BTD, kernel_DV, targets_BT, weights_BT, blocks)

    return jax.jit(jax.value_and_grad(of, argnums=(0, 1), has_aux=True))


def oracle(hidden_BTD, kernel_DV, targets_BT, weights_BT):
    """The same in float64, gradients by hand."""
    h, w = hidden_BTD.astype(np.float64), kernel_DV[:, :VOCAB].astype(np.float64)
    logits_BTV = h @ w
    log_z_BT = np.log(np.exp(logits_BTV).sum(-1))
    one_hot_BTV = np.eye(VOCAB)[targets_BT]
    nll_BT = log_z_BT - (logits_BTV * one_hot_BTV).sum(-1)
    total = ((nll_BT + Z_LOSS * log_z_BT**2) * weights_BT).sum()
    p_BTV = np.exp(logits_BTV - log_z_BT[..., None])
    d_BTV = p_BTV * (1 + 2 * Z_LOSS * log_z_BT)[..., None] - one_hot_BTV
    d_BTV = d_BTV * weights_BT[..., None]
    d_kernel_DV = np.zeros((D, V))
    d_kernel_DV[:, :VOCAB] = np.einsum("btd,btv->dv", h, d_BTV)
    sums = loss.Sums(total, (nll_BT * weights_BT).sum(), weights_BT.sum())
    return sums, (d_BTV @ w.T, d_kernel_DV)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("blocks", [1, 4])
def test_value_and_gradients_equal_float64(case, blocks, shape):
    """Padded columns of the vocabulary, which the oracle does not have, get gradients of zero."""
    mesh = tiny.mesh(shape)
    specs = (P(("data", "fsdp")), P("fsdp", "tensor"), P(("data", "fsdp")), P(("data", "fsdp")))
    with jax.set_mesh(mesh):
        placed = [
            jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(case, specs, strict=True)
        ]
        (_, sums), grads = jax.block_until_ready(differentiate(blocks)(*placed))
    expected, expected_grads = oracle(*case)
    np.testing.assert_allclose(sums, expected, rtol=1e-6)
    tiny.assert_trees_close(grads, expected_grads, 1e-6)
    assert not np.asarray(grads[1])[:, VOCAB:].any()


def test_bfloat16_by_hand_for_a_cpu_is_that_of_the_compiler_within_rounding(case):
    """Where the shares are kept in the type of the logits; these are the same."""
    hidden_BTD, *rest = case
    given = (hidden_BTD.astype(jnp.bfloat16), *rest)
    (_, expected), expected_grads = differentiate(1)(*given)
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        (_, sums), grads = differentiate(1)(*given)
    assert grads[0].dtype == jnp.bfloat16
    np.testing.assert_allclose(sums, expected, rtol=1e-4)
    for found, usual in zip(grads, expected_grads, strict=True):
        found, usual = (np.asarray(x, np.float32) for x in (found, usual))
        assert 0 < np.abs(found - usual).max() < 0.01 * np.abs(usual).max()
    assert not np.asarray(grads[1])[:, VOCAB:].any()


@pytest.fixture(params=[False, True], ids=["plain", "by hand"])
def by_hand(request):
    """Without a mesh the loss is that of any platform, on one of a CPU that for CPUs."""
    if not request.param:
        yield
        return
    with jax.set_mesh(tiny.mesh((1, 1, 1))):
        yield


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("blocks", [1, 4])
def test_padded_columns_get_no_probability(case, blocks):
    hidden_BTD, kernel_DV, targets_BT, _ = case
    of = jax.jit(
        lambda kernel: loss.token_loss(hidden_BTD, kernel, AXES, targets_BT, VOCAB, blocks)
    )
    huge_DV = kernel_DV.copy()
    huge_DV[:, VOCAB:] = 1e4
    tiny.assert_trees_equal(of(huge_DV), of(kernel_DV))


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("blocks", [1, 4])
def test_extreme_logits_are_finite(blocks):
    """Nothing overflows, whichever block holds the greatest logit."""
    hidden_BTD, kernel_DV = jnp.ones((B, T, D)), jnp.zeros((D, V)).at[:, VOCAB - 1].set(100.0)
    targets_BT = jnp.full((B, T), VOCAB - 1).at[:, 0].set(0)
    tokens = loss.token_loss(hidden_BTD, kernel_DV, AXES, targets_BT, VOCAB, blocks)
    np.testing.assert_allclose(tokens.log_z_BT, 1600)
    np.testing.assert_allclose(tokens.nll_BT[:, 1:], 0)
    np.testing.assert_allclose(tokens.nll_BT[:, 0], 1600)


def test_without_z_loss_the_objective_is_the_likelihood(case):
    tokens = loss.TokenLoss(jnp.asarray(case[0][..., 0]), jnp.full((B, T), 3.0))
    weights_BT = jnp.asarray(case[3])
    plain = loss.sums(tokens, weights_BT, LossConfig())
    assert plain.loss == plain.nll
    with_z = loss.sums(tokens, weights_BT, LossConfig(z_loss=0.5))
    assert math.isclose(with_z.loss - with_z.nll, 0.5 * 9 * weights_BT.sum(), rel_tol=1e-5)


def largest_array(blocks, case) -> int:
    """Elements of the largest array in the compiled program of the gradients."""
    text = differentiate(blocks).lower(*case).compile().as_text()
    shapes = re.findall(r"\b(?:f32|bf16|s32|pred)\[([\d,]+)\]", text)
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)


def test_blocks_never_form_the_full_logits(case):
    assert largest_array(1, case) == B * T * V
    assert largest_array(4, case) < B * T * V


def test_blocks_that_do_not_fit_are_refused_with_ones_that_do():
    loss.check_blocks(4, 256, tensor=2)
    with pytest.raises(ConfigError) as error:
        loss.check_blocks(7, 384, tensor=2)
    assert str(error.value) == (
        "config.loss.vocab_blocks=7: the padded vocabulary of 384 is not a multiple of 7 blocks x "
        "2 tensor shards; use 6"
    )
