"""Bytes to and from memory."""

import pytest

from jaxlm.plan import hlo
from jaxlm.plan.accesses import Accesses, Moved
from tests.plan.programs import computation, program

MIB = 2**20
BIG = "f32[4,256,1024]{2,1,0}"  # 4 MiB
ROW = "f32[1,256,1024]{2,1,0}"  # 1 MiB


def mib(entry: str, *computations: str) -> Moved:
    """Of a program's last instruction."""
    module = hlo.parse(program(entry, *computations))
    moved = Accesses(module).of(module.entry.root, module.entry)
    return Moved(round(moved.hbm / MIB, 2), round(moved.host / MIB, 2))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{BIG} add(%big, %big)", 12),
        (f"{BIG} copy(%big)", 8),
        (f"{BIG} bitcast(%big)", 0),
        (f"({BIG}) tuple(%big)", 0),
        (f"{ROW} dynamic-slice(%big, %i, %i, %i)", 2),
        (f"{ROW} slice(%big)", 2),
        (f"{ROW} gather(%big, %i)", 2),
        (f"{BIG} dynamic-update-slice(%big, %row, %i, %i, %i)", 2),
        (f"{BIG} scatter(%big, %i, %row)", 2),
        (f"(({BIG}), {BIG}, u32[]) fusion-start(%big), kind=kLoop, calls=%negate", 8),
        (f'{BIG} custom-call(), custom_call_target="AllocateBuffer"', 0),
        (f"{BIG} all-reduce(%big), replica_groups={{}}", 8),
    ],
)
def test_operands_and_results_once_and_slices_by_the_slice(line, expected):
    negate = computation("negate", f"%p = {BIG} parameter(0)\n%n = {BIG} negate(%p)")
    entry = f"""%big = {BIG} parameter(0)
        %row = {ROW} parameter(1)
        %i = s32[] parameter(2)
        %c = {line}"""
    assert mib(entry, negate) == (expected, 0)


ARGUMENTS = f"""%p = {BIG} parameter(0)
    %x = {ROW} parameter(1)
    %i = s32[] parameter(2)\n"""


@pytest.mark.parametrize(
    ("inside", "result", "expected"),
    [
        (f"%s = {ROW} dynamic-slice(%p, %i, %i, %i)\n%r = {ROW} add(%s, %x)", ROW, 3),
        (f"%r = {BIG} dynamic-update-slice(%p, %x, %i, %i, %i)", BIG, 2),
        (
            f"""%b = f32[1024,1024]{{1,0}} bitcast(%p)
            %s = f32[256,1024]{{1,0}} slice(%b)
            %r = {ROW} bitcast(%s)""",
            ROW,
            2,
        ),
        (f"%n = {BIG} negate(%p)\n%r = {BIG} dynamic-update-slice(%n, %x, %i, %i, %i)", BIG, 6),
        (f"%r = {BIG} fusion(%p, %x, %i), kind=kLoop, calls=%put", BIG, 2),
        (f"%n = {ROW} negate(%x)\n%r = ({ROW}, {BIG}) tuple(%n, %p)", f"({ROW}, {BIG})", 2),
    ],
)
def test_a_fusion_reads_and_writes_what_its_parts_do(inside, result, expected):
    """An unused row costs nothing."""
    put = computation("put", ARGUMENTS + f"%u = {BIG} dynamic-update-slice(%p, %x, %i, %i, %i)")
    fused = computation("fused", ARGUMENTS + inside)
    call = f"%f = {result} fusion(%p, %x, %i), kind=kLoop, calls=%fused"
    assert mib(ARGUMENTS + call, put, fused).hbm == expected


def test_other_memories_are_counted_apart_or_not_at_all():
    tiles = "{1,0:T(8,128)"

    def copy(to: str) -> Moved:
        return mib(f"""%a = f32[1024,1024]{tiles}}} parameter(0)
            %s = (f32[1024,1024]{tiles}S({to})}}, f32[1024,1024]{tiles}}}, u32[]{{:S(2)}}) \
copy-start(%a)""")

    assert copy("0") == (8, 0)
    assert copy("1") == (4, 0)  # into a TPU's vector memory
    assert copy("5") == (4, 4)  # to the host


def test_a_slice_from_the_host_moves_the_slice():
    host = "{2,1,0:T(8,128)S(5)}"
    fetch = f"""%a = f32[4,256,1024]{host} parameter(0)
        %i = s32[]{{:T(128)}} parameter(1)
        %s = ((f32[4,256,1024]{host}, s32[]), f32[1,256,1024]{{2,1,0:T(8,128)}}, u32[]{{:S(2)}}) \
dynamic-slice-start(%a, %i, %i, %i), dynamic_slice_sizes={{1,256,1024}}"""
    assert mib(fetch) == (1, 1)


def test_space_one_of_a_gpu_is_device_memory():
    assert mib("%a = f32[1024,1024]{1,0:S(1)} parameter(0)\n%b = f32[1024,1024]{1,0} copy(%a)") == (
        8,
        0,
    )
