"""Notes: each for its cause, and none without one."""

from dataclasses import replace

import pytest

from jaxlm.plan import notes
from jaxlm.plan.figures import Flops, Traffic
from tests.plan.made_up import PLAN

GIB = 2**30


def traffic(kind: str, axes: tuple[str, ...], gib: float, least: float, waiting: float = 0.0):
    return Traffic(kind, axes, 1, gib * GIB, least * GIB, waiting * GIB)


GOOD = (
    traffic("all-gather", ("fsdp",), 10.0, 10.0),
    traffic("reduce-scatter", ("fsdp",), 5.0, 5.0),
    traffic("all-reduce", ("data",), 1.0, 1.0),
)


def test_nothing_is_said_of_what_is_as_it_should_be():
    assert list(notes.of_traffic(GOOD, "")) == []
    assert list(notes.of_flops(Flops(1.0, 1.1, 1.24, 1.25))) == []
    assert list(notes.of_memory(0.5)) == []
    assert list(notes.of_recomputing("")) == []
    assert list(notes.of_host(PLAN.fit, PLAN.layout)) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (traffic("all-reduce", ("fsdp",), 10.0, 0.01), "10.00 GiB over fsdp are all-reduced"),
        (traffic("all-to-all", ("tensor",), 2.0, 0.0), "2.00 GiB that no formula accounts for"),
        (traffic("all-gather", ("tensor",), 6.0, 5.0), "1.20 times the minimum of 5.00 GiB"),
    ],
)
def test_bytes_above_the_minimum_are_told(row, said):
    (note,) = notes.of_traffic((*GOOD, row), "")
    assert said in note


def test_small_change_is_not_worth_a_word():
    assert list(notes.of_traffic((*GOOD, traffic("all-reduce", ("fsdp",), 0.1, 0.0)), "")) == []


def test_collectives_that_wait_are_told():
    waiting = traffic("all-gather", ("tensor",), 50.0, 50.0, 50.0)
    (note,) = notes.of_traffic((*GOOD, waiting), "")
    assert note.startswith("76% of the bytes are in collectives without a start and a done")


def test_a_compiler_that_recomputes_is_told():
    (note,) = notes.of_flops(Flops(1.0, 1.1, 1.0, 1.07))
    assert "executes 1.07 times the FLOPs" in note and "recomputes on its own account" in note
    (note,) = notes.of_flops(Flops(1.0, 1.1, 1.24, 1.0))
    assert "executes 0.81 of the FLOPs" in note


def test_too_little_room_is_told():
    (note,) = notes.of_memory(0.031)
    assert note.startswith("3.1% of the memory is free")
    assert list(notes.of_memory(-0.1)) == []  # the verdict says it


@pytest.mark.parametrize(
    ("offload", "remat", "rows", "ways"),
    [
        (("optimizer",), "dots", 4, ["config.optim.offload=false"]),
        (
            ("optimizer", "activations"),
            "dots",
            4,
            [
                "fewer config.train.rows_per_device",
                "a stronger config.model.remat",
                "config.model.offload_activations=false",
                "config.optim.offload=false",
            ],
        ),
        (("activations",), "full", 1, ["config.model.offload_activations=false"]),
    ],
)
def test_a_host_that_is_too_small_names_what_takes_less_of_it(offload, remat, rows, ways):
    layout = replace(PLAN.layout, offload=offload, remat=remat, rows_per_device=rows)
    (note,) = notes.of_host(PLAN.fit._replace(host=289 * GIB), layout)
    said, _, named = note.partition("; what lowers it: ")
    assert said == "a device's share of its host's memory is too small: 289.00 GiB of 200.00"
    assert named.split(", ") == ways
