"""The table of accelerators, and the shapes that are refused with what is near."""

import itertools

import pytest

from jaxlm import hardware
from jaxlm.plan import target as plan
from jaxlm.schema import ConfigError
from launch import machines
from launch.machines import MACHINES, parse


def test_the_table_has_every_chip_of_the_trainer():
    assert list(MACHINES) == list(hardware.CHIPS)
    for name, machine in MACHINES.items():
        chip = hardware.CHIPS[name]
        assert machine.chips * chip.devices_per_chip == chip.devices_per_host
        assert (machine.kind == "tpu") == (chip.platform == "tpu")


@pytest.mark.parametrize("name", [n for n, m in MACHINES.items() if m.kind == "tpu"])
def test_a_slice_is_legal_as_it_is_for_a_plan(name):
    machine, edges = MACHINES[name], (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 64)
    for dims in (1, 2, 3):
        for shape in itertools.product(edges, repeat=dims):
            text = f"{name}:{'x'.join(map(str, shape))}"
            alone = shape == (1, 1, 1) and not machine.machine_type_of_one
            assert is_legal(text) == (plan_takes(text) and not alone), text


def is_legal(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def plan_takes(text: str) -> bool:
    try:
        plan.parse(text)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "hosts", "each", "machine_type"),
    [
        ("v5p:4x4x8", 32, 4, "ct5p-hightpu-4t"),
        ("v5p:2x2x1", 1, 4, "ct5p-hightpu-4t"),
        ("v5e:1x1", 1, 1, "ct5lp-hightpu-1t"),
        ("v6e:2x4", 2, 4, "ct6e-standard-4t"),
        ("7x:1x1x1", 1, 1, "tpu7x-standard-1t"),
        ("h100:8", 1, 8, "a3-megagpu-8g"),
        ("h100:4x8", 4, 8, "a3-megagpu-8g"),
        ("h100:1x2", 1, 2, "a3-megagpu-8g"),
    ],
)
def test_hosts_of_a_target(text, hosts, each, machine_type):
    target = parse(text)
    assert (target.hosts, target.chips_per_host, target.machine_type) == (hosts, each, machine_type)


def test_a_machine_of_one_chip_has_its_share_of_the_memory():
    assert parse("v5e:1x1").memory_gib == 48
    assert parse("v5e:2x2").memory_gib == 192
    assert parse("a100:1x1").memory_gib == 1360  # a GPU node is one machine, however many are used


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu:8", "'tpu:8': no accelerator 'tpu'; known are v4, v5e, v5p, v6e, 7x, a100-40g, a100"),
        ("v5p", "'v5p': write an accelerator and a shape, as v5p:4x4x8, v6e:16x16, h100:4x8"),
        ("v5p:4x4x-8", "'v5p:4x4x-8': write an accelerator and a shape"),
        ("v5p:0x4x4", "'v5p:0x4x4': write an accelerator and a shape"),
        ("v5p:4x4", "a slice of v5p has 3 dimensions, in chips; near are v5p:2x2x4"),
        ("v5p:4x4x6", "there is no such slice; there are 2x2x1, 2x2x2, 2x2x4, 2x4x4 and AxBxC"),
        ("v5p:4x4x6", "near are v5p:4x4x4 or v5p:4x4x8"),
        ("v5p:8x4x4", "near are v5p:4x4x8"),
        ("v5p:3x3x3", "chips=27 is not a multiple of the 4 that a host has; near are v5p:2x2x4 or"),
        ("v6e:16x32", "512 chips, but the largest slice has 256 (--slices: more); near are v6e:16"),
        ("v5p-256", "128 chips; write the chips along each axis, as v5p:4x4x8"),
        ("v5litepod-16", "16 chips; write the chips along each axis, as v5e:4x4"),
        ("h100:4x8x2", "write nodes x GPUs a node, as h100:4x8"),
        ("h100:4x16", "16 GPUs a node, but a node of h100 has 8; use h100:4x8"),
        ("h100:3", "3 GPUs a node, but a node of h100 has 8; use h100:1x8, or on one node a div"),
        ("h100:4x4", "4 nodes of 4 GPUs, but several nodes are used whole; use h100:4x8"),
        ("h100:5000x8", "40,000 GPUs, but at most 32,768 are launched; use fewer"),
    ],
)
def test_a_wrong_target_is_told_what_is_near(text, message):
    with pytest.raises(ValueError) as e:
        parse(text)
    assert message in str(e.value)


# ---- TPU VMs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "accelerator_type", "runtime"),
    [
        ("v4:2x2x4", "v4-32", "tpu-ubuntu2204-base"),
        ("v5e:4x4", "v5litepod-16", "v2-alpha-tpuv5-lite"),
        ("v5p:4x4x8", "v5p-256", "v2-alpha-tpuv5"),
        ("v6e:16x16", "v6e-256", "v2-alpha-tpuv6e"),
    ],
)
def test_the_name_that_a_slice_is_sold_under(text, accelerator_type, runtime):
    target = parse(text)
    assert target.accelerator_type == accelerator_type
    assert target.machine.tpu_vm is not None and target.machine.tpu_vm.runtime == runtime


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7x:4x4x4", "is not to be had as a TPU VM: the Cloud TPU API has v4, v5e, v5p, v6e; use"),
        ("h100:8", "is not to be had as a TPU VM"),
        ("v5p:4x4x16", "a TPU VM of 256 chips comes as v5p:4x8x8; use that shape, or GKE"),
    ],
)
def test_what_is_no_tpu_vm_has_no_such_name(text, message):
    with pytest.raises(ValueError, match=message):
        assert parse(text).accelerator_type


def test_every_example_is_legal():
    for text in machines.EXAMPLES.split(", "):
        parse(text)
