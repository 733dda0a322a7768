"""What fused kernels share, with a kernel in plain JAX: shards, heads, names."""

from functools import partial

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxlm.ops.attention import fused
from jaxlm.ops.attention.fused import Passes
from jaxlm.ops.attention.reference import document_mask
from jaxlm.schema import ConfigError
from tests import tiny
from tests.ops.attention import rows
from tests.ops.attention.rows import Rows


def scores(q_BTHK, k_BTNK, segments_BT):
    """Scaled and masked, float32 [B, H, T, S], and k for each query head."""
    k_BTHK = jnp.repeat(k_BTNK, q_BTHK.shape[2] // k_BTNK.shape[2], axis=2)
    s_BHTS = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) * q_BTHK.shape[-1] ** -0.5
    return jnp.where(document_mask(segments_BT)[:, None], s_BHTS, -1e30)


def forward(q_BTHK, k_BTNK, v_BTNK, segments_BT):
    """A softmax by its log-sum-exp."""
    s_BHTS = scores(q_BTHK, k_BTNK, segments_BT)
    lse_BHT = jax.nn.logsumexp(s_BHTS, axis=-1)
    v_BTHK = jnp.repeat(v_BTNK, q_BTHK.shape[2] // v_BTNK.shape[2], axis=2)
    p_BHTS = jnp.exp(s_BHTS - lse_BHT[..., None])
    return jnp.einsum("bhts,bshk->bthk", p_BHTS, v_BTHK), lse_BHT


def backward(q_BTHK, k_BTNK, v_BTNK, segments_BT, out_BTHK, lse_BHT, d_out_BTHK):
    """By what the forward pass saved: wrong if a shard were given another's."""

    def again(q_BTHK, k_BTNK, v_BTNK):
        p_BHTS = jnp.exp(
            scores(q_BTHK, k_BTNK, segments_BT) - jax.lax.stop_gradient(lse_BHT)[..., None]
        )
        v_BTHK = jnp.repeat(v_BTNK, q_BTHK.shape[2] // v_BTNK.shape[2], axis=2)
        attended_BTHK = jnp.einsum("bhts,bshk->bthk", p_BHTS, v_BTHK)
        total_BTH = p_BHTS.sum(-1).swapaxes(1, 2)
        return ((attended_BTHK - total_BTH[..., None] * out_BTHK) * d_out_BTHK).sum()

    return jax.grad(again, (0, 1, 2))(q_BTHK, k_BTNK, v_BTNK)


make = partial(fused.make, Passes(forward, backward))


def on_mesh(shape: tuple[int, int, int], function, given: Rows):
    with jax.set_mesh(tiny.mesh(shape)):
        return jax.block_until_ready(jax.jit(function, compiler_options=tiny.FAST)(given))


@pytest.mark.parametrize(
    ("shape", "heads", "kv_heads"),
    [
        ((1, 1, 1), 4, 2),
        ((2, 2, 2), 8, 4),
        ((1, 1, 8), 8, 8),
        ((1, 1, 8), 16, 4),
        ((1, 2, 4), 4, 1),
    ],
)
def test_agrees_with_the_reference_on_every_mesh(shape, heads, kv_heads):
    """Where the tensor axis cannot split the key-value heads, too."""
    given = rows.make(32, heads, kv_heads, 8, "float32")
    found = on_mesh(shape, partial(rows.value_and_gradients, make), given)
    tiny.assert_trees_close(list(found), list(rows.expected(given)), 2e-6)


def test_agrees_without_a_mesh():
    given = rows.make(32, 4, 2, 8, "float32")
    found = jax.jit(rows.value_and_gradients, static_argnums=0)(make, given)
    tiny.assert_trees_close(list(found), list(rows.expected(given)), 2e-6)


@pytest.mark.parametrize("shape", [(2, 2, 2), (4, 1, 1)])
def test_agrees_inside_of_the_data_axis(shape):
    """As a step that sums its gradients there runs it; each replica has its own rows."""
    given = rows.make(32, 8, 2, 8, "float32")

    def replicas(given: Rows) -> tuple[jax.Array, ...]:
        return jax.shard_map(
            partial(rows.value_and_gradients, make),
            in_specs=P("data"),
            out_specs=P("data"),
            axis_names={"data"},
            check_vma=False,
        )(given)

    found = on_mesh(shape, replicas, given)
    tiny.assert_trees_close(list(found), list(rows.expected(given)), 2e-6)


def test_each_device_computes_its_own_heads_and_rows():
    """Not all of them and then a part: no array of all heads of all rows in its program."""
    given = rows.make(32, 8, 4, 8, "float32")
    seen = []

    def watched(*inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen.append([x.shape for x in inputs])
        return forward(*inputs)

    on_mesh((1, 2, 4), partial(fused_value, watched), given)
    assert seen[0] == [(2, 32, 2, 8), (2, 32, 1, 8), (2, 32, 1, 8), (2, 32)]


def fused_value(forward, given: Rows) -> jax.Array:
    return fused.make(Passes(forward, backward), given.segments_BT)(*given[:3])


def test_heads_that_the_mesh_cannot_split_are_refused():
    given = rows.make(32, 6, 6, 8, "float32")
    with pytest.raises(ConfigError, match=r"'heads' of size 6 .* cannot be split 4 ways"):
        on_mesh((1, 2, 4), partial(rows.value_and_gradients, make), given)


def test_what_is_saved_by_name_stays_split():
    """The output [B, T, H, K] and the log-sum-exp [B, H, T], by rows and by heads."""
    given = rows.make(32, 8, 4, 8, "float32")
    policy = jax.checkpoint_policies.save_only_these_names("attention_out", "attention_lse")

    def saved(given: Rows) -> list[jax.Array]:
        run = jax.checkpoint(lambda *qkv: make(given.segments_BT)(*qkv), policy=policy)
        pull = jax.vjp(run, *given[:3])[1]
        return [x for x in jax.tree.leaves(pull) if x.dtype == np.float32]

    out = [x for x in on_mesh((1, 2, 4), saved, given) if x.shape in ((4, 32, 8, 8), (4, 8, 32))]
    parts = {x.shape: x.addressable_shards[0].data.shape for x in out}
    assert parts[(4, 8, 32)] == (2, 2, 32)
    assert (2, 32, 2, 8) in {x.addressable_shards[0].data.shape for x in out}
