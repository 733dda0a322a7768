"""Each policy computes again what its table says, saves what it says where it says, no more."""

import math
from dataclasses import replace
from functools import cache

import jax
import pytest
from jax import numpy as jnp
from jax.extend.core import Jaxpr

from jaxlm import models
from jaxlm.config import ModelConfig
from jaxlm.models.remat import REMAT
from jaxlm.ops.attention import LSE
from jaxlm.optim.paths import flat
from jaxlm.schema import ConfigError
from jaxlm.step import gradients
from tests import tiny
from tests.jaxprs import equations
from tests.tiny import MODEL, B, T

POLICIES = [name for name, policy in REMAT.items() if policy is not None]
SCORES = 2 * B * T * T * MODEL.d_model * MODEL.n_layers
"""FLOPs of all queries with all keys; as many again with the values."""


def products(jaxpr: Jaxpr) -> int:
    """FLOPs of matrix products, those in the loop over layers as often as it runs."""
    found = 0
    for equation, loops in equations(jaxpr):
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            length = math.prod(equation.invars[0].aval.shape[dim] for dim in contracted)
            times = MODEL.n_layers**loops
            found += 2 * times * length * math.prod(equation.outvars[0].aval.shape)
    return found


@cache
def trace(cfg: ModelConfig) -> Jaxpr:
    step = tiny.step_def(cfg)
    differentiate = lambda params, rows: gradients(params, step, rows, None)  # noqa: E731
    return jax.make_jaxpr(differentiate)(step.model.abstract(), tiny.ids()).jaxpr


@pytest.mark.parametrize("layers", ["scan", "unroll"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_computes_again_what_it_says(name, layers):
    """The reference's backward pass needs its scores again; a kernel's holds them in any case."""
    again = products(trace(replace(MODEL, remat=name, layers=layers))) - products(trace(MODEL))
    policy, shapes = REMAT[name], flat(models.build(MODEL).abstract()["blocks"])
    sizes = {"/".join(path[:-1]): math.prod(leaf.shape) for path, leaf in shapes.items()}
    expected = 2 * B * T * sum(sizes[weight] for weight in policy.recomputes)
    assert again == expected + SCORES + (SCORES if policy.recomputes_attention else 0)


@pytest.mark.parametrize("name", POLICIES)
def test_offload_computes_nothing_more(name):
    cfg = replace(MODEL, remat=name)
    assert products(trace(replace(cfg, offload_activations=True))) == products(trace(cfg))


def saved(cfg: ModelConfig) -> tuple[list, list]:
    """Shapes of what the forward loop over the layers stacks up, on the device and on the host."""
    loops = [e for e in trace(cfg).eqns if e.primitive.name == "scan"]
    stacked = [v.aval for v in loops[0].outvars if v.aval.shape[:1] == (MODEL.n_layers,)]
    floats = [aval for aval in stacked if jnp.issubdtype(aval.dtype, jnp.floating)]
    on_host = lambda aval: aval.memory_space == jax.memory.Space.Host  # noqa: E731
    return (
        sorted(a.shape[1:] for a in floats if not on_host(a)),
        sorted(a.shape[1:] for a in floats if on_host(a)),
    )


H, N, K = MODEL.n_heads, MODEL.n_kv_heads, MODEL.head_size
STREAM, HEADS, KEYS, HIDDEN = (
    (B, T, MODEL.d_model), (B, T, H, K), (B, T, N, K), (B, T, MODEL.d_ff),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full", [STREAM]),
        ("attention", [STREAM, HEADS]),
        ("dots", [STREAM, STREAM, HEADS, HEADS, KEYS, KEYS, HIDDEN, HIDDEN]),
    ],
)
def test_what_is_saved_lies_where_it_should(name, expected):
    """The layer's input; the attention's output; products: q, k, v, what attention adds, gate, up.

    The last product of a layer is not saved: nothing in the backward pass asks for it.
    """
    cfg = replace(MODEL, remat=name)
    device, host = saved(cfg)
    assert (device, host) == (sorted(expected), [])
    device, host = saved(replace(cfg, offload_activations=True))
    assert (device, host) == ([], sorted(expected))


def test_the_log_sum_exp_of_a_kernel_is_saved_with_its_output():
    assert all(LSE in REMAT[name].names for name in ("dots", "attention"))


@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_gradients_through_the_host_are_the_same(layers):
    """Of all that can be offloaded, run."""
    params, found = tiny.init(models.build(MODEL)), []
    for offload in (False, True):
        cfg = replace(MODEL, remat="dots", offload_activations=offload, layers=layers)
        step = tiny.step_def(cfg)
        differentiate = lambda params, rows, step=step: gradients(params, step, rows, None)  # noqa: E731
        run = jax.jit(differentiate, compiler_options=tiny.FAST)
        found.append(run(params, tiny.ids()))
    tiny.assert_trees_equal(found[1], found[0])


def test_offload_without_a_policy_is_refused():
    with pytest.raises(ConfigError, match=r"offload_activations=True: with remat='none' it"):
        models.build(replace(MODEL, offload_activations=True))
