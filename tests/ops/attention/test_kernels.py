"""Fused kernels against the reference on packed rows, in interpret mode; and what they register."""

from collections import Counter
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm.ops.attention import ATTENTION, LSE, OUT, cpu, pallas, splash
from tests import tiny
from tests.ops.attention import rows

INTERPRETED = {
    "splash": partial(splash.make, interpret=True),
    "pallas": partial(pallas.make, interpret=True),
}
FUSED = {
    "splash": (
        "splash_mha_fwd_segmented_residuals",
        "splash_mha_dq_segmented_no_residuals",
        "splash_mha_dkv_segmented_no_residuals",
    ),
    "pallas": ("attention_forward", "attention_backward_queries", "attention_backward_keys"),
    "cudnn": ("dot_product_attention_fwd", "dot_product_attention_bwd"),
}
"""Their kernels, forward first."""
BLOCKS = {"splash": 384, "pallas": 256}
"""Rows of several blocks, and of blocks without a pair between documents."""


@pytest.mark.parametrize("name", INTERPRETED)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "dtype", "tolerance"),
    [(4, 2, 64, "float32", 2e-6), (2, 2, 128, "bfloat16", 0.008)],
)
def test_agrees_with_the_reference(name, heads, kv_heads, head_size, dtype, tolerance):
    given = rows.make(BLOCKS[name], heads, kv_heads, head_size, dtype)
    found = jax.jit(
        partial(rows.value_and_gradients, INTERPRETED[name]), compiler_options=tiny.FAST
    )(given)
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    tiny.assert_trees_close(
        [x.astype(jnp.float32) for x in found], list(rows.expected(given)), tolerance
    )


@pytest.mark.parametrize("seq_len", [256, 512, 250])  # the last is no whole number of blocks
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dtype", "tolerance"),
    [(4, 2, "float32", 2e-6), (6, 6, "float32", 2e-6), (4, 1, "bfloat16", 0.008)],
)
def test_that_of_the_cpu_does_too(seq_len, heads, kv_heads, dtype, tolerance):
    given = rows.make(seq_len, heads, kv_heads, 16, dtype)
    found = jax.jit(partial(rows.value_and_gradients, cpu.make))(given)
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    tiny.assert_trees_close(
        [x.astype(jnp.float32) for x in found], list(rows.expected(given)), tolerance
    )


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize(("policy", "forwards"), [("named", 4), ("nothing", 8)])
def test_a_policy_that_saves_the_names_runs_the_forward_kernel_once(name, policy, forwards):
    """Of 4 scanned layers: in none of them again for the backward pass."""
    found = kernels_run(jaxpr_of_layers(name, policy).jaxpr)
    first, *others = FUSED[name]
    assert found[first] == forwards
    assert [found[other] for other in others] == [4] * len(others)


@pytest.mark.parametrize("name", ATTENTION)
def test_every_kernel_marks_its_output(name):
    assert f"name={OUT}" in str(jaxpr_of_layers(name, "named"))


@pytest.mark.parametrize("name", FUSED)
def test_calls_have_the_names_under_which_their_costs_are_registered(name):
    found = kernels_run(jaxpr_of_layers(name, "named").jaxpr)
    for call in ATTENTION[name].calls:
        assert any(call.name in kernel for kernel in found)


@pytest.mark.parametrize("name", ["splash", "pallas", "cudnn"])
def test_registered_flops_are_those_of_the_blocks_at_or_below_the_diagonal(name):
    b, t, h, n, k = 2, 1024, 8, 2, 64
    q, kv = (b, t, h, k), (b, t, n, k)
    if name == "splash":
        q, kv = (b, h, t, k), (b, n, t, k)
    block = 512 if name == "splash" else 128
    places = np.arange(t) // block
    pairs = (places[:, None] >= places[None]).sum()
    products = {"splash": (2, 3, 4), "pallas": (2, 3, 4), "cudnn": (2, 5)}[name]
    for call, number in zip(ATTENTION[name].calls, products, strict=True):
        operands = [q, kv, kv, (b, t)]
        assert call.flops(operands, [q]) == number * 2 * b * h * k * pairs
        least = 2 * b * t * k * (h + n)  # bfloat16: something like q, and k or v, at least once
        assert least <= call.bytes(operands, [kv, kv], 2) < 100 * least


def kernels_run(jaxpr: Any, times: int = 1) -> Counter[str]:
    """How often a program runs each kernel; of a condition, both sides."""
    found: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        primitive, parameters = equation.primitive.name, equation.params
        if primitive == "pallas_call":
            found[parameters["name"]] += times
            continue
        found[primitive] += times
        inner = times * parameters.get("length", 1) if primitive == "scan" else times
        for value in jax.tree.leaves(parameters, is_leaf=lambda x: hasattr(x, "jaxpr")):
            below = getattr(value, "jaxpr", value)
            if hasattr(below, "eqns"):
                found += kernels_run(below, inner)
    return found


def jaxpr_of_layers(name: str, policy: str) -> Any:
    """The gradient of 4 scanned layers of attention; nothing runs."""
    policies = {
        "named": jax.checkpoint_policies.save_only_these_names(OUT, LSE),
        "nothing": jax.checkpoint_policies.nothing_saveable,
    }
    b, t, h, n, k = 2, 512, 4, 2, 64

    def loss(kernels_L: jax.Array, x_BTD: jax.Array, segments_BT: jax.Array) -> jax.Array:
        attend = ATTENTION[name].make(segments_BT)

        def layer(x_BTD: jax.Array, kernel: jax.Array) -> tuple[jax.Array, None]:
            y = jnp.tanh(x_BTD @ kernel).reshape(b, t, h + 2 * n, k)
            out = attend(y[:, :, :h], y[:, :, h : h + n], y[:, :, h + n :])
            return x_BTD + out.reshape(b, t, h * k), None

        return jax.lax.scan(jax.checkpoint(layer, policy=policies[policy]), x_BTD, kernels_L)[
            0
        ].sum()

    return jax.make_jaxpr(jax.grad(loss))(
        jnp.zeros((4, h * k, (h + 2 * n) * k), jnp.bfloat16),
        jnp.zeros((b, t, h * k), jnp.bfloat16),
        jnp.zeros((b, t), jnp.int32),
    )
