"""Options by chip: every chip has its line, every line its reason; so have variables."""

from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jaxlm import compiler, platforms
from jaxlm.hardware import CHIPS


@pytest.mark.parametrize("table", [compiler.OPTIONS, platforms.ENVIRONMENT])
def test_every_chip_has_a_line_and_every_setting_a_reason(table):
    assert table.keys() == CHIPS.keys()
    for settings in table.values():
        for name, option in settings.items():
            assert len(option.reason) > 40 and option.reason.endswith("."), name


@pytest.mark.parametrize("chip", CHIPS)
def test_options_are_those_of_the_devices_chip(chip):
    for kind in CHIPS[chip].kinds:
        device: Any = SimpleNamespace(device_kind=kind)
        settings = compiler.OPTIONS[chip]
        assert compiler.options(device) == {name: o.value for name, o in settings.items()}
    prefixes = ("xla_tpu_", "xla_jf_") if CHIPS[chip].platform == "tpu" else ("xla_gpu_",)
    assert all(name.startswith(prefixes) for name in compiler.OPTIONS[chip])


@pytest.mark.parametrize("chip", CHIPS)
def test_only_gpus_must_be_told_to_be_deterministic(chip, tmp_path):
    device: Any = SimpleNamespace(device_kind=CHIPS[chip].kinds[0])
    usual, more = compiler.options(device), compiler.options(device, tmp_path)
    added = {name: value for name, value in more.items() if name not in usual}
    expected = {
        "xla_gpu_exclude_nondeterministic_ops": True,
        "xla_gpu_per_fusion_autotune_cache_dir": str(tmp_path),
    }
    assert more == {**usual, **added}
    assert added == (expected if CHIPS[chip].platform == "cuda" else {})


def test_a_cpu_has_none(tmp_path):
    cpu = jax.devices("cpu")[0]
    assert compiler.options(cpu) == compiler.options(cpu, tmp_path) == {}
