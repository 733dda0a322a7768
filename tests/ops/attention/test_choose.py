"""Which kernel a device gets, and what is said where it cannot have the one asked for."""

from types import SimpleNamespace

import jax
import pytest

from jaxlm.ops.attention import ATTENTION, Need, choose, describe
from jaxlm.schema import ConfigError

TPU = SimpleNamespace(platform="tpu", device_kind="TPU v5p")
A100 = SimpleNamespace(platform="gpu", device_kind="A100", compute_capability="8.0")
H100 = SimpleNamespace(platform="cuda", device_kind="H100", compute_capability="9.0")
V100 = SimpleNamespace(platform="gpu", device_kind="V100", compute_capability="7.0")

NEED = Need(head_size=128, seq_len=4096, dtype="bfloat16")


@pytest.mark.parametrize(
    ("device", "need", "kernel"),
    [
        (jax.devices()[0], NEED, "cpu"),
        (TPU, NEED, "splash"),
        (TPU, NEED._replace(seq_len=1000), "reference"),
        (TPU, NEED._replace(head_size=96), "reference"),
        (A100, NEED, "pallas"),
        (H100, NEED, "pallas"),
        (H100, NEED._replace(head_size=96), "reference"),
        (H100, NEED._replace(dtype="float32"), "pallas"),
        (V100, NEED, "reference"),
    ],
)
def test_auto_takes_the_first_that_can(device, need, kernel):
    assert choose("auto", device, need) == kernel
    assert choose(kernel, device, need) == kernel


@pytest.mark.parametrize(
    ("name", "device", "need", "message"),
    [
        ("flash", H100, NEED, "must be one of auto, splash, pallas, cudnn, cpu, reference"),
        ("splash", H100, NEED, "runs on tpu, not on cuda; use auto, or one of pallas, cudnn, ref"),
        ("pallas", jax.devices()[0], NEED, "runs on cuda, not on cpu; use auto, or one of cpu, "),
        ("cudnn", A100, NEED, "needs compute capability 9.0, and A100 has 8.0; use auto, or one o"),
        ("cudnn", H100, NEED._replace(dtype="float32"), "computes in bfloat16, not in compute_dt"),
        ("splash", TPU, NEED._replace(head_size=96), "heads of 64, 128 or 256, not of head_size=9"),
        ("splash", TPU, NEED._replace(seq_len=96), "rows of a multiple of 128, not seq_len=96; us"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule_and_what_can(name, device, need, message):
    with pytest.raises(ConfigError, match=message) as refused:
        choose(name, device, need)
    assert f"config.model.attention={name!r}" in str(refused.value)


def test_the_line_of_a_run_says_which_kernel_and_why_no_other():
    assert describe("splash", TPU, NEED).startswith("attention: splash (splash attention, in bl")
    assert "all T x T pairs" in describe("reference", jax.devices()[0], NEED)
    found = describe("reference", V100, NEED)
    assert "pallas needs compute capability 8.0, and V100 has 7.0" in found
    assert "splash" not in found


@pytest.mark.parametrize("name", ATTENTION)
def test_every_kernel_does_a_common_model_on_some_device(name):
    devices = (jax.devices()[0], TPU, A100, H100)
    assert any(ATTENTION[name].refusal(device, NEED) is None for device in devices)
