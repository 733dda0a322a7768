"""The text of compiled programs, with the habits of each compiler."""

import pytest

from jaxlm.plan import hlo
from jaxlm.plan.hlo import HloError, Shape
from tests.plan.programs import computation, program

PALLAS = """\
HloModule m, is_scheduled=true

ENTRY %main.3 (p.0: bf16[8,128]) -> bf16[8,128] {
  %p.0 = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %call.1 = (bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, f32[8]{0:T(128)}) custom-call(%p.0), \
custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 128, \\"calls=%wrong\\": 1}"
}
}}, metadata={op_name="jit(f)/splash_mha_fwd" stack_frame_id=6}, backend_config={"body":"}"}
  ROOT %out = bf16[8,128]{1,0:T(8,128)(2,1)} get-tuple-element(%call.1), index=0
}
"""


def test_raw_newlines_in_a_kernels_attributes_do_not_end_it():
    entry = hlo.parse(PALLAS).entry
    assert [i.name for i in entry.instructions] == ["p.0", "call.1", "out"]
    call = entry.by_name["call.1"]
    assert call.op_name == "jit(f)/splash_mha_fwd"
    assert call.word("custom_call_target") == "tpu_custom_call"
    assert call.operands == ["p.0"]
    assert entry.root.word("index") == "0"


def test_a_computation_of_another_thread_ends_too():
    aside = computation("aside", "%p = f32[] parameter(0)") + ', execution_thread="sparsecore"'
    found = hlo.parse(program("%c = f32[] constant(1)", aside)).computations
    assert {name: len(c.instructions) for name, c in found.items()} == {"aside": 1, "main": 1}


def test_types_of_tuples_keep_their_nesting():
    text = program(
        """%p = f32[2]{0} parameter(0)
        %s = ((f32[2]{0}, s32[]), /*index=1*/(bf16[4,8]{1,0}, u32[]{:S(2)}), token[]) start(%p)
        %t = f32[2]{0} get-tuple-element(%s), index=0"""
    )
    start = hlo.parse(text).entry.by_name["s"]
    f32, bf16 = Shape("f32", (2,), "0"), Shape("bf16", (4, 8), "1,0")
    s32, u32, token = Shape("s32", (), ""), Shape("u32", (), ":S(2)"), Shape("token", (), "")
    assert start.type == ((f32, s32), (bf16, u32), token)
    assert start.shapes == (f32, s32, bf16, u32, token)
    assert (str(bf16), bf16.bytes, s32.bytes, token.bytes) == ("bf16[4,8]", 64, 4, 0)


@pytest.mark.parametrize(
    ("layout", "space", "tiled"),
    [
        ("1,0", hlo.DEVICE, 3 * 130 * 2),
        ("1,0:T(8,128)(2,1)", hlo.DEVICE, 8 * 256 * 2),  # 3 -> 8 rows, 130 -> 256 columns
        ("0,1:T(8,128)(2,1)S(1)", hlo.VMEM, 136 * 128 * 2),  # the other dimension is minor
        ("1,0:T(8,128)(2,1)S(5)", hlo.HOST, 8 * 256 * 2),
        ("1,0:T(512)", hlo.DEVICE, 3 * 512 * 2),
    ],
)
def test_a_layout_says_where_an_array_lies_and_how_it_is_padded(layout, space, tiled):
    shape = Shape("bf16", (3, 130), layout)
    assert (shape.space, shape.tiled_bytes, shape.bytes) == (space, tiled, 3 * 130 * 2)


def test_attributes():
    text = program(
        """%p = f32[2]{0} parameter(0)
        %t = f32[2]{0} conditional(%p, %p, %p), true_computation=%one.1, false_computation=%two
        %c = f32[2]{0} conditional(%p, %p), branch_computations={%one.1, %two}, \
channel_id=7, dimensions={0,3}, metadata={op_name="jit(f)/x=\\"1\\"/y" stack_frame_id=3}"""
    )
    entry = hlo.parse(text).entry
    c = entry.root
    assert c.branches == entry.by_name["t"].branches == ["one.1", "two"]
    assert (c.word("channel_id"), c.ints("dimensions")) == ("7", (0, 3))
    assert (c.word("nothing"), c.ints("nothing"), c.called("nothing")) == (None, (), None)
    assert c.op_name == 'jit(f)/x=\\"1\\"/y'


def test_who_uses_what():
    text = program(
        """%p = f32[2]{0} parameter(0)
        %a = f32[2]{0} add(%p, %p)
        %m = f32[2]{0} multiply(%a, %p)"""
    )
    entry = hlo.parse(text).entry
    assert [(i.name, n) for i, n in entry.users["p"]] == [("a", 0), ("a", 1), ("m", 1)]
    assert entry.users["m"] == []
    assert entry.root.name == "m"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("HloModule m\n", "no ENTRY"),
        (program("%p = f32[2]{0} parameter(0"), "closing parenthesis"),
        (program("%p = f32[2]{0}"), "not an instruction"),
    ],
)
def test_what_cannot_be_read_is_an_error(text, says):
    with pytest.raises(HloError, match=says):
        hlo.parse(text)


def test_an_unknown_type_is_an_error():
    entry = hlo.parse(program("%p = f6e2m3[2]{0} parameter(0)")).entry
    with pytest.raises(HloError, match="f6e2m3"):
        _ = entry.root.shapes
