"""What the compilers of TPU and GPU make of a state, and of saved values, in host memory.

A small model in few tokens, so that state or saved values are most of what a device holds.
"""

import re
from dataclasses import replace
from functools import cache

import pytest

from jaxlm.config import Config, DataConfig, MeshConfig, ModelConfig, OptimConfig, TrainConfig
from jaxlm.plan import host, program, target

pytestmark = pytest.mark.system

L = 6
MODEL = ModelConfig(
    vocab_size=2048, d_model=512, n_layers=L, n_heads=4, n_kv_heads=4, d_ff=1408,
    attention="reference", remat="full",
)  # fmt: skip
ROWS = 8
"""Of a device."""
TARGETS = ("v5p:2x2x1", "h100:1x4")


def config(offload: bool, offload_activations: bool) -> Config:
    return Config(
        model=replace(MODEL, offload_activations=offload_activations),
        data=DataConfig(source="synthetic", seq_len=512),
        optim=OptimConfig(offload=offload),
        train=TrainConfig(batch_size=4 * ROWS, end="1 steps"),
        mesh=MeshConfig(1, 4, 1),
    )


@cache
def compiled(name: str, offload: bool = False, activations: bool = False):
    """Memory of a device, and the program."""
    lowered = program.lower(config(offload, activations), target.parse(name))
    if name.startswith("h100"):
        host.keep_on_host(lowered.program)
    found = lowered.program.compile()
    memory = found.memory_analysis()
    assert memory is not None
    return memory, found.as_text() or ""


def state_bytes() -> int:
    """Of the two moments, a device's share."""
    d, f, v = MODEL.d_model, MODEL.d_ff, MODEL.padded_vocab
    return 2 * 4 * (L * (4 * d * d + 3 * d * f) + 2 * v * d) // 4


@pytest.mark.parametrize("name", TARGETS)
def test_state_in_host_memory_leaves_the_device(name):
    """All of it but one layer's: the rest of the device's peak stays."""
    before, _ = compiled(name)
    after, text = compiled(name, offload=True)
    assert after.host_argument_size_in_bytes == pytest.approx(state_bytes(), rel=0.02)
    assert after.host_alias_size_in_bytes == after.host_argument_size_in_bytes
    assert after.host_temp_size_in_bytes < state_bytes() / 10  # no second copy there
    peak = after.peak_memory_in_bytes - after.host_argument_size_in_bytes
    assert before.peak_memory_in_bytes - peak > 0.7 * state_bytes()
    moved = re.findall(rf"f32\[{L},[\d,]+\]\S*S\(5\)\S* (?:%\S+ = )?dynamic-update-slice", text)
    assert moved or "S(5)" in text


@pytest.mark.parametrize("name", TARGETS)
def test_saved_values_in_host_memory_leave_the_device(name):
    """The stream that enters each layer, in bfloat16."""
    before, _ = compiled(name)
    after, text = compiled(name, activations=True)
    saved = L * ROWS * 512 * MODEL.d_model * 2
    assert "S(5)" in text
    host_bytes = after.host_temp_size_in_bytes
    assert host_bytes == pytest.approx(saved, rel=0.1)
    assert before.peak_memory_in_bytes - (after.peak_memory_in_bytes - host_bytes) > 0.5 * saved
