"""The reference against a loop in float64."""

import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm.ops.attention.reference import attention as reference
from jaxlm.ops.attention.reference import document_mask

B, T, K = 2, 5, 4


def naive(q_BTHK, k_BSNK, v_BSNK, mask_BTS):
    """One query, one head at a time."""
    out = np.zeros(q_BTHK.shape)
    groups = q_BTHK.shape[2] // k_BSNK.shape[2]
    for b, t, h in np.ndindex(q_BTHK.shape[:3]):
        seen = np.flatnonzero(mask_BTS[b, t])
        scores = k_BSNK[b, seen, h // groups] @ q_BTHK[b, t, h] / np.sqrt(q_BTHK.shape[3])
        p = np.exp(scores - scores.max())
        out[b, t, h] = p / p.sum() @ v_BSNK[b, seen, h // groups]
    return out


@pytest.fixture
def qkv():
    """6 query heads over 2, 3 or 6 key-value heads, more keys than queries."""
    random = np.random.default_rng(0)

    def make(kv_heads: int, keys: int):
        shapes = (B, T, 6, K), (B, keys, kv_heads, K), (B, keys, kv_heads, K)
        return [random.normal(0, 2, shape) for shape in shapes]

    return make


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_equals_a_loop_in_float64(qkv, kv_heads):
    q, k, v = qkv(kv_heads, keys=7)
    mask_BTS = np.random.default_rng(1).random((B, T, 7)) < 0.5
    mask_BTS[:, :, 3] = True
    found = reference(*(jnp.asarray(x, jnp.float32) for x in (q, k, v)), jnp.asarray(mask_BTS))
    np.testing.assert_allclose(found, naive(q, k, v, mask_BTS), rtol=2e-5, atol=1e-6)


def test_a_query_without_any_key_gives_no_nan(qkv):
    q, k, v = (jnp.asarray(x, jnp.float32) for x in qkv(2, keys=7))
    found = reference(q, k, v, jnp.zeros((B, T, 7), bool))
    assert np.isfinite(found).all()


def test_the_softmax_is_float32_in_bfloat16():
    """1,024 equal weights: a sum of them in bfloat16 would stop growing at a quarter."""
    q, k = jnp.zeros((1, 1, 1, K), jnp.bfloat16), jnp.zeros((1, 1024, 1, K), jnp.bfloat16)
    v = jnp.ones((1, 1024, 1, K), jnp.bfloat16)
    found = reference(q, k, v, jnp.ones((1, 1, 1024), bool))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(jnp.float32), 1.0, rtol=2**-7)


def test_document_mask():
    mask = document_mask(jnp.array([[0, 0, 1, 1, 1]]))[0].astype(int)
    assert mask.tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
