"""Collectives in each form that the compilers print."""

import pytest

from jaxlm.plan import walk
from jaxlm.plan.collectives import Collective
from tests.plan.programs import computation, program

MESH = {"data": 2, "fsdp": 4, "tensor": 1}
FSDP = "channel_id=1, replica_groups=mesh['data'=2,'fsdp'=4,'tensor'=1] {'fsdp'}"


def found(entry: str, *computations: str) -> tuple[Collective, ...]:
    return tuple(walk.count(program(entry, *computations), MESH).collectives)


def only(entry: str, *computations: str) -> Collective:
    (collective,) = found(entry, *computations)
    return collective


@pytest.mark.parametrize(
    ("line", "kind", "payload", "wire"),
    [
        ("bf16[64,8]{1,0} all-gather(%x), dimensions={0}", "all-gather", 1024, 768),
        ("bf16[4,8]{1,0} reduce-scatter(%x), dimensions={0}", "reduce-scatter", 256, 192),
        ("bf16[16,8]{1,0} all-reduce(%x), to_apply=%add", "all-reduce", 256, 384),
        ("bf16[16,8]{1,0} all-to-all(%x), dimensions={0}", "all-to-all", 256, 192),
    ],
)
def test_bytes_of_a_group_of_four(line, kind, payload, wire):
    """An all-gather's payload is its result; the others' is what goes in."""
    c = only(f"%x = bf16[16,8]{{1,0}} parameter(0)\n%c = {line}, {FSDP}")
    assert (c.kind, c.payload_bytes, c.wire_bytes) == (kind, payload, wire)
    assert (c.axes, c.dtype, c.count) == (("fsdp",), "bf16", 1)
    assert (c.fused, c.asynchronous, c.loops, c.name) == (False, False, (), "c")


def test_a_permute_sends_what_it_takes_along_the_axes_that_change():
    pairs = "{{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}"
    c = only(
        f"""%x = bf16[16,8]{{1,0}} parameter(0)
        %s = (bf16[16,8]{{1,0}}, bf16[16,8]{{1,0}}, u32[], u32[]) collective-permute-start(%x), \
channel_id=1, source_target_pairs={pairs}
        %d = bf16[16,8]{{1,0}} collective-permute-done(%s)"""
    )
    assert (c.kind, c.payload_bytes, c.wire_bytes) == ("collective-permute", 256, 256)
    assert (c.axes, c.asynchronous, c.fused) == (("fsdp",), True, False)


def test_a_start_counts_by_its_operands_whatever_its_type():
    """GPU: an all-reduce's type is (operands, result), a gather's holds both in tuples."""
    c = only(
        f"""%x = f32[258]{{0}} parameter(0)
        %s = ((f32[258]{{0}}), f32[258]{{0}}) all-reduce-start(%x), {FSDP}, to_apply=%add
        %d = f32[258]{{0}} all-reduce-done(%s)"""
    )
    assert (c.kind, c.payload_bytes, c.shapes) == ("all-reduce", 1032, ("f32[258]",))
    assert c.asynchronous


def test_types_moved_together_are_told_apart():
    both = found(
        f"""%i = u16[8]{{0}} parameter(0)
        %a = bf16[4,8]{{1,0}} parameter(1)
        %b = bf16[2,8]{{1,0}} parameter(2)
        %s = ((u16[8]{{0}}, bf16[4,8]{{1,0}}, bf16[2,8]{{1,0}}), (u16[32]{{0}}, \
bf16[16,8]{{1,0}}, /*index=2*/bf16[8,8]{{1,0}})) all-gather-start(%i, %a, %b), {FSDP}"""
    )
    assert [(c.dtype, c.payload_bytes, c.shapes) for c in both] == [
        ("u16", 64, ("u16[32]",)),
        ("bf16", 384, ("bf16[16,8]", "bf16[8,8]")),
    ]
    assert {c.name for c in both} == {"s"}


def test_a_sum_of_bfloat16_in_float32_moves_float32():
    c = only(
        f"""%x = bf16[16]{{0}} parameter(0)
        %c = f32[16]{{0}} all-reduce(%x), {FSDP}, to_apply=%add"""
    )
    assert (c.dtype, c.payload_bytes) == ("f32", 64)


def test_groups_of_one_device_are_no_collective():
    assert not found(
        """%x = f32[8]{0} parameter(0)
        %c = f32[8]{0} all-reduce(%x), channel_id=1, replica_groups=[8,1]<=[8], to_apply=%add"""
    )


FUSED = f"""%p = bf16[64,8]{{1,0}} parameter(0)
    %all = bf16[64,8]{{1,0}} all-reduce(%p), {FSDP}, to_apply=%add, \
metadata={{op_name="jit(f)/dot_general"}}
    %i = s32[] constant(0)"""


def test_a_tpus_fused_all_reduce_and_slice_is_a_reduce_scatter():
    fused = computation(
        "all-reduce-scatter.1",
        FUSED + "\n%s = bf16[16,8]{1,0} dynamic-slice(%all, %i, %i), dynamic_slice_sizes={16,8}",
    )
    c = only(
        """%x = bf16[64,8]{1,0} parameter(0)
        %f = bf16[16,8]{1,0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1""",
        fused,
    )
    assert (c.kind, c.payload_bytes, c.wire_bytes) == ("reduce-scatter", 1024, 768)
    assert (c.fused, c.asynchronous, c.shapes) == (True, False, ("bf16[16,8]",))
    assert (c.name, c.op_name) == ("f", "jit(f)/dot_general")


def test_a_fused_all_reduce_that_is_kept_whole_stays_one():
    fused = computation("whole", FUSED + "\n%s = bf16[64,8]{1,0} add(%all, %all)")
    c = only(
        """%x = bf16[64,8]{1,0} parameter(0)
        %f = bf16[64,8]{1,0} fusion(%x), kind=kLoop, calls=%whole""",
        fused,
    )
    assert (c.kind, c.wire_bytes, c.fused) == ("all-reduce", 1536, True)


def test_a_tpus_chain_of_fusions_gathers_once():
    gather = (
        f"%g = bf16[64,8]{{1,0}} all-gather(%p), {FSDP.replace('=1,', '=40,')}, dimensions={{0}}"
    )
    parts = [
        computation(
            name,
            f"""%p = bf16[16,8]{{1,0}} parameter(0)
            {gather}
            {root}""",
        )
        for name, root in {
            "start": "%c = (bf16[16,8]{1,0}, bf16[64,8]{1,0}, u32[]) custom-call(%g), "
            'custom_call_target="AsyncCollectiveStart"',
            "step": "%t = (bf16[16,8]{1,0}, bf16[64,8]{1,0}) tuple(%p, %g)",
            "end": "%c = bf16[64,8]{1,0} custom-call(%p, %g), "
            'custom_call_target="AsyncCollectiveDone"',
        }.items()
    ]
    c = only(
        """%x = bf16[16,8]{1,0} parameter(0)
        %async-collective-start = (bf16[16,8]{1,0}, bf16[64,8]{1,0}, u32[]) fusion(%x), calls=%start
        %y = bf16[16,8]{1,0} get-tuple-element(%async-collective-start), index=0
        %fusion.1 = (bf16[16,8]{1,0}, bf16[64,8]{1,0}) fusion(%y), kind=kOutput, calls=%step
        %async-collective-done = bf16[64,8]{1,0} fusion(%y), kind=kCustom, calls=%end""",
        *parts,
    )
    assert (c.kind, c.wire_bytes, c.name) == ("all-gather", 768, "async-collective-start")
    assert c.fused and c.asynchronous


def test_a_tpus_sparse_core_runs_it_beside_the_rest():
    aside = computation(
        "called",
        f"""%p = bf16[16,8]{{1,0}} parameter(0)
        %g = bf16[64,8]{{1,0}} all-gather(%p), {FSDP}, dimensions={{0}}""",
    )
    c = only(
        """%x = bf16[16,8]{1,0} parameter(0)
        %s = ((), (), (s32[1]{0:S(2)})) call-start(), async_execution_thread="sparsecore", \
to_apply=%called
        %u = ((bf16[16,8]{1,0}), bf16[64,8]{1,0}) call-update(%s, %x)
        %d = bf16[64,8]{1,0} call-done(%u)""",
        aside + ', execution_thread="sparsecore"',
    )
    assert (c.kind, c.wire_bytes, c.asynchronous, c.fused) == ("all-gather", 768, True, False)


@pytest.mark.parametrize(
    ("kind", "slices", "payload", "wire"),
    [
        ("ALL_REDUCE", "{1,2}", 512, 512),
        ("ALL_REDUCE", "{1:4}", 512, 768),
        ("ALL_GATHER", "{1,2}", 1024, 512),
        ("REDUCE_SCATTER", "{1,2}", 512, 256),
    ],
)
def test_a_send_to_other_slices_is_the_collective_that_it_names(kind, slices, payload, wire):
    c = only(
        f"""%x = f32[1,128]{{1,0:T(8,128)}} parameter(0)
        %t = token[] after-all()
        %send = (f32[1,128]{{1,0:T(8,128)}}, u32[]{{:S(2)}}, token[]) send(%x, %t), channel_id=2, \
is_host_transfer=true, frontend_attributes={{_xla_megascale_reduce_operation="SUM",\
_xla_megascale_target="{slices}x{{0:7}}",_xla_megascale_transfer_type="{kind}"}}
        %recv = (f32[1,128]{{1,0:T(8,128)}}, u32[]{{:S(2)}}, token[]) recv(%t), channel_id=1, \
is_host_transfer=true, frontend_attributes={{_xla_megascale_transfer_type="{kind}"}}
        %send-done = token[] send-done(%send), channel_id=2, is_host_transfer=true"""
    )
    assert (c.kind, c.payload_bytes, c.wire_bytes) == (
        kind.lower().replace("_", "-"),
        payload,
        wire,
    )
    assert (c.axes, c.between_slices, c.asynchronous) == (("data",), True, True)


RING = "channel_id=3, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
OF_DOT = 'metadata={op_name="jit(f)/dot_general"}'
STATE = "(s32[], bf16[4,8]{1,0}, bf16[8,8]{1,0}, bf16[4,8]{1,0})"


def matmul_loop(sent: str, next_sum: str) -> tuple[Collective, ...]:
    """A loop of two passes, in steps of two, that permutes beside a product."""
    body = computation(
        "windowed_dot_general_body.1",
        f"""%s = {STATE} parameter(0)
        %i = s32[] get-tuple-element(%s), index=0
        %x = bf16[4,8]{{1,0}} get-tuple-element(%s), index=1
        %w = bf16[8,8]{{1,0}} get-tuple-element(%s), index=2
        %sum = bf16[4,8]{{1,0}} get-tuple-element(%s), index=3
        %two = s32[] constant(2)
        %next = s32[] add(%i, %two)
        %y = bf16[4,8]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, {OF_DOT}
        %z = bf16[4,8]{{1,0}} add(%sum, %y), {OF_DOT}
        %moved = bf16[4,8]{{1,0}} collective-permute({sent}), {RING}, {OF_DOT}
        %t = {STATE} tuple(%next, {next_sum})""",
    )
    condition = computation(
        "condition",
        f"""%s = {STATE} parameter(0)
        %i = s32[] get-tuple-element(%s), index=0
        %n = s32[] constant(4)
        %lt = pred[] compare(%i, %n), direction=LT""",
    )
    entry = f"""%i = s32[] constant(0)
        %x = bf16[4,8]{{1,0}} parameter(0)
        %w = bf16[8,8]{{1,0}} parameter(1)
        %s = {STATE} tuple(%i, %x, %w, %x)
        %l = {STATE} while(%s), condition=%condition, body=%windowed_dot_general_body.1"""
    return found(entry, body, condition)


def test_a_collective_matmul_that_moves_what_it_multiplies_is_a_gather():
    (c,) = matmul_loop("%x", "%moved, %w, %z")
    assert (c.kind, c.fused, c.count, c.loops) == ("all-gather", True, 2, (2,))
    assert c.payload_bytes == c.wire_bytes == 64


@pytest.mark.parametrize(("sent", "after"), [("%z", "%x, %w, %moved"), ("%sum", "%x, %w, %z")])
def test_a_collective_matmul_that_moves_sums_is_a_scatter(sent, after):
    (c,) = matmul_loop(sent, after)
    assert (c.kind, c.fused, c.count) == ("reduce-scatter", True, 2)


def test_an_unrolled_collective_matmul_is_told_by_its_products():
    first, second = found(
        f"""%x = bf16[4,8]{{1,0}} parameter(0)
        %w = bf16[8,8]{{1,0}} parameter(1)
        %before = bf16[4,8]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, \
metadata={{op_name="jit(f)/other"}}
        %there = bf16[4,8]{{1,0}} collective-permute(%before), {RING}, {OF_DOT}
        %y = bf16[4,8]{{1,0}} dot(%there, %w), lhs_contracting_dims={{1}}, {OF_DOT}
        %sum = bf16[4,8]{{1,0}} collective-permute(%y), {RING}, {OF_DOT}"""
    )
    assert (first.kind, second.kind) == ("all-gather", "reduce-scatter")
