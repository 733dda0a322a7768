"""A roofline by hand, and which bytes cross from node to node."""

import math

import pytest

from jaxlm.plan import target
from jaxlm.plan.minimum import Move
from jaxlm.plan.roofline import roofline, span, split

H100S = target.parse("h100:8x8")
NODE = 8
MESH = {"data": 2, "fsdp": 16, "tensor": 2}
"""64 GPUs in 8 nodes: a replica takes four."""


@pytest.mark.parametrize(
    ("axes", "devices", "nodes"),
    [
        (("tensor",), 2, 1),
        (("fsdp",), 16, 4),
        (("data",), 2, 2),
        (("data", "fsdp"), 32, 8),
        (("fsdp", "tensor"), 32, 4),
        (("data", "fsdp", "tensor"), 64, 8),
        ((), 1, 1),
    ],
)
def test_where_a_group_lies(axes, devices, nodes):
    assert span(axes, MESH, NODE) == (devices, nodes)
    assert span(axes, MESH, 64) == (devices, 1)


def test_inside_a_node_all_is_on_the_fast_links():
    assert split(Move("", "all-gather", ("tensor",), 300.0), MESH, NODE) == (300.0, 0.0)


def test_a_ring_crosses_each_node_once():
    """160 bytes gathered by 16 GPUs, 4 in each of 4 nodes.

    A GPU sends 150. A node misses 120 of the 160, and its 4 GPUs fetch 30 each.
    """
    fast, slow = split(Move("", "all-gather", ("fsdp",), 150.0), MESH, NODE)
    assert fast == 150.0 and math.isclose(slow, 30.0)


def test_replicas_on_other_nodes_have_only_the_network():
    """Two replicas of 100 bytes, all-reduced: each sends half, and half of the sum."""
    assert split(Move("", "all-reduce", ("data",), 100.0), MESH, NODE) == (0.0, 100.0)


def test_all_to_all_goes_where_the_others_are():
    """Of the 15 others that get a byte each, 3 are here and 12 elsewhere."""
    fast, slow = split(Move("", "all-to-all", ("fsdp",), 15.0), MESH, NODE)
    assert math.isclose(fast, 3.0) and math.isclose(slow, 12.0)


def test_a_step_by_hand():
    found = roofline(
        H100S,
        MESH,
        flops=989e12 * 2,
        hbm_bytes=3.35e12 * 0.5,
        moves=[
            Move("", "all-gather", ("tensor",), 900e9),
            Move("", "all-reduce", ("data",), 150e9),
        ],
        host_bytes=64e9 * 0.25,
    )
    expected = {"compute": 2.0, "memory": 0.5, "link": 2.0, "network": 3.0, "host": 0.25}
    assert found.parts == pytest.approx(expected)
    assert found.bound == "network" and math.isclose(found.step_s, 3.0)
    assert math.isclose(found.serial_s, 7.75)


def test_float32_takes_twice_as_long_on_a_gpu_and_as_long_on_a_tpu():
    for on, factor in ((H100S, 1.5), (target.parse("v5p:4x4x4"), 1.0)):
        found = roofline(on, MESH, flops=2e12, float32_flops=1e12, hbm_bytes=0.0, moves=[])
        assert math.isclose(found.compute, factor * 2 / on.chip.bf16_tflops)


def test_between_slices_all_is_on_the_network():
    move = Move("", "all-reduce", ("data",), 7.0, between_slices=True)
    assert split(move, MESH, 64) == (0.0, 7.0)


@pytest.mark.parametrize(
    ("name", "slices", "devices"), [("h100:4x8", 1, 8), ("v5e:4x4", 2, 16), ("7x:2x2x2", 1, 16)]
)
def test_who_shares_the_fast_links(name, slices, devices):
    assert target.parse(name, slices).per_domain == devices
