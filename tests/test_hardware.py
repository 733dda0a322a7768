"""Chips: one entry a device kind, and rates that are those of one device and one direction."""

import math

import pytest

from jaxlm import hardware
from jaxlm.hardware import CHIPS, GIB


def test_a_device_kind_names_one_chip():
    kinds = [kind for chip in CHIPS.values() for kind in chip.kinds]
    assert len(set(kinds)) == len(kinds)
    for name, chip in CHIPS.items():
        assert chip.name == name
        assert {hardware.by_kind(kind) for kind in chip.kinds} == {chip}
    assert hardware.by_kind("cpu") is None


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_is_whole(name):
    """Each link is slower than the one further in, and nothing is off by a factor of 1,000."""
    chip = CHIPS[name]
    rates = (chip.memory_bandwidth, chip.link_bandwidth, chip.network_bandwidth)
    assert list(rates) == sorted(rates, reverse=True) and rates[-1] > 1e9
    assert chip.memory_bandwidth < 1e13 and 100 < chip.bf16_tflops < 3000
    assert 15 * GIB < chip.memory_bytes < 200 * GIB
    assert chip.host_bytes > chip.memory_bytes
    assert (chip.capability > (0, 0)) == (chip.platform == "cuda")


def test_a_core_of_v7x_is_half_a_chip():
    core = CHIPS["7x"]
    assert core.devices_per_chip == 2 and core.devices_per_host == 8
    assert core.bf16_tflops == 2307 / 2 and core.memory_bandwidth == 7380e9 / 2


def test_of_a_gpu_xla_takes_its_share():
    total = 84_942_979_072
    assert CHIPS["h100"].memory_bytes == int(total * hardware.GPU_MEMORY_SHARE)
    assert math.isclose(CHIPS["h100"].memory_bytes / GIB, 72.8, abs_tol=0.05)
