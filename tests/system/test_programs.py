"""What the compilers of TPU and GPU make of the step: what is gathered, scattered and summed, when.

The CPU's is no guide: it sums gradients whole and slices them afterwards. A program that has come
out wrong here runs, and to the same loss; it only moves twice the bytes, or runs out of memory.
"""

import functools
import math
import re
import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from jaxlm.config import Config, DataConfig, LossConfig, MeshConfig, ModelConfig, TrainConfig
from jaxlm.plan import minimum, program, target, walk
from jaxlm.plan.collectives import Collective
from jaxlm.plan.walk import Counts

LAYERS = 3
"""The size of no other dimension, so that an array of all layers can be told."""
D, F, VOCAB, T, ROWS = 1024, 2816, 16384, 1024, 2
SMALL = 2**18
"""Bytes below which nothing is judged: scales of norms, sums of the loss. A matrix has more."""
SLACK = 1.1


@dataclass(frozen=True)
class Case:
    """A step to compile."""

    target: str
    mesh: tuple[int, int, int]
    """data, fsdp, tensor"""
    slices: int = 1
    microbatches: int = 2
    tied: bool = False
    remat: Literal["none", "full"] = "full"
    blocks: int = 1
    sums_whole_gradients: bool = False
    """The TPU compiler insists: where fsdp is the whole slice, and the chip has no SparseCores, it
    turns a reduce-scatter into an all-reduce, however the program asks for it."""

    def __str__(self) -> str:
        slices = f"-{self.slices}slices" if self.slices > 1 else ""
        return f"{self.target}{slices}-{'x'.join(map(str, self.mesh))}"


CASES = [
    Case("h100:2x8", (2, 4, 2), tied=True),
    Case("v5p:2x2x2", (2, 2, 2)),
]
"""Everything at once, on a GPU and on a TPU: in every run of the long tests."""
MORE = [
    Case("h100:1x8", (1, 8, 1)),
    Case("h100:1x8", (1, 2, 4), blocks=2, remat="none"),
    Case("v5p:2x2x2", (1, 8, 1), microbatches=1),
    Case("v5e:4x4", (1, 16, 1), microbatches=1, sums_whole_gradients=True),
    Case("v5e:2x2", (2, 4, 1), slices=2, blocks=2),
]


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(case, marks=pytest.mark.system) for case in CASES),
        *(pytest.param(case, marks=pytest.mark.compilers) for case in MORE),
    ],
    ids=str,
)
def case(request) -> Case:
    return request.param


def config(case: Case) -> Config:
    data, fsdp, tensor = case.mesh
    return Config(
        model=ModelConfig(
            vocab_size=VOCAB,
            d_model=D,
            n_layers=LAYERS,
            n_heads=8,
            n_kv_heads=4,
            d_ff=F,
            tied_embeddings=case.tied,
            attention="reference",  # that of a machine would come and go with its packages
            remat=case.remat,
            dropout=(("0 rows", 0.1),),
        ),
        data=DataConfig(source="synthetic", seq_len=T),
        loss=LossConfig(vocab_blocks=case.blocks),
        train=TrainConfig(
            batch_size=ROWS * case.microbatches * data * fsdp, rows_per_device=ROWS, end="9 steps"
        ),
        mesh=MeshConfig(data, fsdp, tensor),
    )


@functools.cache
def compiled(case: Case) -> tuple[program.Program, Counts]:
    made = program.compile(config(case), target.parse(case.target, case.slices))
    return made, walk.count(made.text, made.mesh_shape)


def large(case: Case, *kinds: str) -> list[Collective]:
    """Collectives that are worth a look."""
    found = compiled(case)[1].collectives
    return [c for c in found if c.kind in kinds and c.payload_bytes > SMALL]


def test_what_is_done_for_cpus_changes_nothing(case, monkeypatch):
    """The program is that of a trainer without it, and not that of one for a CPU."""

    def digest() -> str:
        return program.lower(config(case), target.parse(case.target, case.slices)).digest

    given, names = digest(), set()
    for name, module in list(sys.modules.items()):
        if name.startswith("jaxlm.") and hasattr(module, "platform_in_force"):
            names.add(name)
            monkeypatch.setattr(module, "platform_in_force", lambda: "")
    assert digest() == given
    choosers = {"jaxlm.ops.dense", "jaxlm.ops.rope", "jaxlm.ops.swiglu", "jaxlm.models.layers"}
    if case.blocks == 1 and case.mesh[2] == 1:  # the others' loss has no other form
        choosers.add("jaxlm.loss")
    assert names >= choosers
    for name in choosers:
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[name], "platform_in_force", lambda: "cpu")
            assert digest() != given, name


def test_gradients_are_scattered_over_fsdp(case):
    """Every matrix in every microbatch; summed whole where the compiler insists, and only there."""
    whole = [c for c in large(case, "all-reduce") if "fsdp" in c.axes]
    scattered = [c for c in large(case, "reduce-scatter") if c.axes == ("fsdp",)]
    if case.sums_whole_gradients:
        assert whole and not scattered
    else:
        assert not whole and scattered


def test_replicas_meet_once_a_step(case):
    """In float32, outside of the loop over microbatches; nothing else is between replicas."""
    between = [c for c in compiled(case)[1].collectives if "data" in c.axes]
    sums = [c for c in large(case, "all-reduce") if "data" in c.axes]
    assert {c.kind for c in between} <= {"all-reduce"}
    assert all(c.loops == () and c.dtype in ("f32", "s32") and c.count == 1 for c in between)
    assert bool(sums) == (case.mesh[0] > 1)
    assert {c.axes for c in sums} <= {("data",)}
    assert all(c.between_slices for c in sums if case.slices > 1)


def test_weights_are_gathered_a_layer_at_a_time_in_bfloat16(case):
    gathers = [c for c in large(case, "all-gather") if "fsdp" in c.axes]
    assert gathers
    for gather in gathers:
        assert gather.dtype == "bf16", gather
        for shape in gather.shapes:
            dims = [int(n) for n in re.findall(r"\d+", shape.partition("[")[2])]
            assert LAYERS not in dims, gather
    in_layers = [c for c in gathers if LAYERS in c.loops]
    assert {c.count for c in in_layers} == {case.microbatches * LAYERS}


def test_logits_stay_where_they_are(case):
    """Split over the vocabulary: nothing of its width crosses the links but the head itself."""
    for collective in large(case, "all-gather", "all-reduce", "all-to-all", "collective-permute"):
        for shape in collective.shapes:
            dims = [int(n) for n in re.findall(r"\d+", shape.partition("[")[2])]
            tokens = math.prod(dims) // max(dims)
            assert not (max(dims) >= VOCAB // case.mesh[2] // case.blocks and tokens > D), shape


def test_no_more_than_a_tenth_above_the_least_bytes(case):
    """On each axis by itself. Where whole gradients are summed it is twice their bytes."""
    least, found = (
        by_axes(x.wire())
        for x in (minimum.expected(config(case), compiled(case)[0].mesh_shape), compiled(case)[1])
    )
    if case.sums_whole_gradients:
        scattered = minimum.expected(config(case), compiled(case)[0].mesh_shape).wire()
        least["fsdp",] += scattered["reduce-scatter", ("fsdp",)]
    assert {axes for axes, size in found.items() if size > SMALL} <= set(least)
    for axes, size in least.items():
        assert found.get(axes, 0) <= SLACK * size + SMALL, (axes, found, least)


def by_axes(wire: dict) -> dict[tuple[str, ...], float]:
    """Bytes that a device sends, of all kinds of collectives."""
    totals: dict[tuple[str, ...], float] = {}
    for (_, axes), size in wire.items():
        totals[axes] = totals.get(axes, 0.0) + size
    return totals


def test_nothing_is_rematerialized_to_reshard_it(case):
    """The partitioner says so where it knows no better way than to gather an array whole."""
    assert "nvoluntary full rematerialization" not in compiled(case)[0].log
