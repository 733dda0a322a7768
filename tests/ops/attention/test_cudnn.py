"""The layout that cuDNN is given, by an emulation of what cuDNN does with it.

The emulation reads flat buffers by the offsets and lengths of its operands, as cuDNN documents
them; that cuDNN itself does so, only a GPU can show.
"""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm.ops.attention import cudnn, pallas
from jaxlm.schema import ConfigError
from tests import tiny
from tests.ops.attention import rows


def documents(q, k, v, lengths, q_offsets, kv_offsets):
    """(number, heads of q, of k, of v, where q is, where k is) of each document, from buffers."""
    h, n, size = q.shape[2], k.shape[2], q.shape[3]
    for d, length in enumerate(lengths.reshape(-1)):
        if length:
            q_at = slice(q_offsets.reshape(-1)[d], q_offsets.reshape(-1)[d] + length * h * size)
            at = slice(kv_offsets.reshape(-1)[d], kv_offsets.reshape(-1)[d] + length * n * size)
            own_q = q.reshape(-1)[q_at].reshape(length, h, size)
            own_k, own_v = (
                np.repeat(x.reshape(-1)[at].reshape(length, n, size), h // n, axis=1)
                for x in (k, v)
            )
            yield d, own_q, own_k, own_v, q_at, at


def softmax(own_q, own_k, scale):
    scores = np.einsum("qhk,shk->hqs", own_q, own_k) * scale
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    lse = np.log(np.exp(scores).sum(-1))
    return np.exp(scores - lse[..., None]), lse


def forward(q, k, v, _b, lengths, _l, q_offsets, kv_offsets, _p, _t, *, scale):
    """Out, and the log-sum-exp of each document from its own start."""
    out = np.full(q.size, np.nan, np.float32)
    stats = np.full((lengths.size, q.shape[2], q.shape[1]), np.nan, np.float32)
    for d, own_q, own_k, own_v, at, _ in documents(q, k, v, lengths, q_offsets, kv_offsets):
        p, lse = softmax(own_q, own_k, scale)
        out[at] = np.einsum("hqs,shk->qhk", p, own_v).reshape(-1)
        stats[d, :, : lse.shape[1]] = lse
    return [out.reshape(q.shape), stats]


def backward(q, k, v, _b, lengths, _l, q_offsets, kv_offsets, _p, _t, stats, out, d_out, *, scale):
    """Gradients, by the log-sum-exp that it is given."""
    dq, dk, dv = (np.full(x.size, np.nan, np.float32) for x in (q, k, v))
    n = k.shape[2]
    sizes = (q, k, v, lengths, q_offsets, kv_offsets)
    for d, own_q, own_k, own_v, q_at, at in documents(*sizes):
        length = own_q.shape[0]
        p = softmax(own_q, own_k, scale)[0]
        lse = softmax(own_q, own_k, scale)[1]
        np.testing.assert_allclose(stats[d, :, :length], lse, rtol=1e-5, atol=1e-5)
        own_out, own_d = (x.reshape(-1)[q_at].reshape(own_q.shape) for x in (out, d_out))
        delta = np.einsum("qhk,qhk->hq", own_out, own_d)
        ds = p * (np.einsum("qhk,shk->hqs", own_d, own_v) - delta[..., None]) * scale
        dq[q_at] = np.einsum("hqs,shk->qhk", ds, own_k).reshape(-1)
        shared = lambda x, length=length: x.reshape(length, n, -1, x.shape[-1]).sum(2)  # noqa: E731
        dk[at] = shared(np.einsum("hqs,qhk->shk", ds, own_q)).reshape(-1)
        dv[at] = shared(np.einsum("hqs,qhk->shk", p, own_d)).reshape(-1)
    return [x.reshape(y.shape) for x, y in zip((dq, dk, dv), (q, k, v), strict=True)]


def primitive(function):
    """Stands for one of JAX's primitives of cuDNN."""

    def bind(*operands, scale, mask_type, **_parameters):
        assert mask_type.name == "PADDING_CAUSAL"
        q, k, v, _, lengths = operands[:5]
        stats = jax.ShapeDtypeStruct((lengths.size, q.shape[2], q.shape[1]), np.float32)
        shapes = [q, stats] if function is forward else [q, k, v]
        shapes = [jax.ShapeDtypeStruct(x.shape, np.float32) for x in shapes]
        run = lambda *values: function(*map(np.asarray, values), scale=scale)  # noqa: E731
        return jax.pure_callback(run, shapes, *operands)

    return SimpleNamespace(bind=bind)


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """cuDNN by the emulation; Pallas, which does not run here, gives zeros."""
    monkeypatch.setattr(cudnn.sdpa, "_dot_product_attention_fwd_p", primitive(forward))
    monkeypatch.setattr(cudnn.sdpa, "_dot_product_attention_bwd_p", primitive(backward))
    none = lambda q, *_: (jnp.zeros_like(q), jnp.zeros_like(q[..., 0]).swapaxes(1, 2))  # noqa: E731
    monkeypatch.setattr(pallas, "forward", none)
    zeros = lambda *inputs: tuple(map(jnp.zeros_like, inputs[:3]))  # noqa: E731
    monkeypatch.setattr(pallas, "backward", zeros)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2)])
def test_documents_are_where_cudnn_looks_for_them(monkeypatch, heads, kv_heads):
    """27 documents in 4 rows, and 32 places: no number is left that was not written."""
    monkeypatch.setattr(cudnn, "TOKENS_A_DOCUMENT", 8)
    given = rows.make(64, heads, kv_heads, 8, "float32")
    found = jax.jit(rows.value_and_gradients, static_argnums=0)(cudnn.make, given)
    tiny.assert_trees_close(list(found), list(rows.expected(given)), 2e-6)


def test_rows_of_more_documents_are_computed_by_pallas():
    """A list that is full still is cuDNN's; one document more is not."""
    inputs = rows.make(16, 2, 2, 8, "float32")
    run = jax.jit(cudnn.forward)
    for number, by_cudnn in ((8, True), (9, False)):  # 4 rows of 2
        segments = np.zeros((4, 16), np.int32)
        segments[3] = np.minimum(np.arange(16), number - 4)
        out, lse = run(*inputs[:3], jnp.asarray(segments))
        assert np.isfinite(lse).all()
        assert bool((out != 0).all()) == by_cudnn


def test_the_log_sum_exp_goes_to_tokens_and_back():
    lse_BHT = jnp.arange(4 * 3 * 64, dtype=jnp.float32).reshape(4, 3, 64)
    lengths = np.array([[40, 24], [1, 63], [64, 0], [32, 32]])
    segments_BT = np.stack([np.repeat([0, 1], row) for row in lengths])

    @jax.jit
    def there_and_back(lse_BHT: jax.Array, segments_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = cudnn.documents(segments_BT)
        by_document = cudnn.by_document(lse_BHT, found)
        return by_document, cudnn.by_token(by_document, found)

    by_document, again = there_and_back(lse_BHT, jnp.asarray(segments_BT))
    assert by_document.shape == (8, 3, 64)
    assert (by_document[1, :, :24] == lse_BHT[0, :, 40:]).all()
    assert (by_document[5, :, :32] == lse_BHT[3, :, :32]).all()
    assert (again == lse_BHT).all()


def test_offsets_beyond_32_bits_are_refused():
    shape = jax.ShapeDtypeStruct((256, 8192, 8, 128), jnp.bfloat16)
    ids = jax.ShapeDtypeStruct((256, 8192), jnp.int32)
    with pytest.raises(ConfigError, match=r"2147483648 elements.*rows_per_device lower"):
        jax.eval_shape(cudnn.forward, shape, shape, shape, ids)
