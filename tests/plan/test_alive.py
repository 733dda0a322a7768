"""What holds memory at the worst moment of a program."""

import pytest

from jaxlm.plan import alive
from tests.plan import make_texts
from tests.plan.programs import computation, program

K = 1024


def kib(entry: str, *computations: str, head: str | None = None) -> float:
    text = (
        program(entry, *computations) if head is None else program(entry, *computations, head=head)
    )
    return alive.peak(text).bytes / K


def test_a_buffer_lives_from_its_maker_to_its_last_user():
    """Arguments always; b and c beside them, then c and d."""
    entry = """%a = f32[256]{0} parameter(0)
        %b = f32[512]{0} broadcast(%a)
        %c = f32[1024]{0} concatenate(%b, %b)
        %d = f32[256]{0} slice(%c)"""
    moment = alive.peak(program(entry))
    assert moment.bytes == (1 + 2 + 4) * K
    assert moment.at == ("c",)
    assert [(b.name, b.argument) for b in moment.buffers] == [
        ("c", False),
        ("b", False),
        ("a", True),
    ]


def test_what_hands_a_buffer_on_makes_none():
    assert (
        kib("""%a = f32[256]{0} parameter(0)
        %b = f32[1,256]{1,0} bitcast(%a)
        %t = (f32[1,256]{1,0}, f32[256]{0}) tuple(%b, %a)
        %g = f32[1,256]{1,0} get-tuple-element(%t), index=0
        %c = f32[1,256]{1,0} opt-barrier(%g)""")
        == 1
    )


def test_an_update_is_made_in_place_also_inside_a_fusion():
    put = computation(
        "put",
        """%p = f32[4,256]{1,0} parameter(0)
        %x = f32[1,256]{1,0} parameter(1)
        %i = s32[] parameter(2)
        %u = f32[4,256]{1,0} dynamic-update-slice(%p, %x, %i, %i)
        %b = f32[4,1,256]{2,1,0} bitcast(%u)""",
    )
    start = """%x = f32[1,256]{1,0} parameter(0)
        %i = s32[] constant(0)
        %room = f32[4,256]{1,0} custom-call(), custom_call_target="AllocateBuffer"\n"""
    plain = "%u = f32[4,256]{1,0} dynamic-update-slice(%room, %x, %i, %i)"
    fused = "%u = f32[4,1,256]{2,1,0} fusion(%room, %x, %i), kind=kLoop, calls=%put"
    assert kib(start + plain) == kib(start + fused, put) == pytest.approx(5, abs=0.01)


def test_a_result_may_take_the_place_of_an_operand_that_dies():
    start = "%a = f32[256]{0} parameter(0)\n%b = f32[256]{0} negate(%a)\n"
    loop = "%c = f32[256]{0} fusion(%b), kind=kLoop, calls=%inner"
    inner = computation("inner", "%p = f32[256]{0} parameter(0)\n%n = f32[256]{0} negate(%p)")
    assert kib(start + loop, inner) == 2
    assert kib(start + loop.replace("kLoop", "kInput"), inner) == 3


@pytest.mark.parametrize("rest", ["", ", backend_config={}"])
def test_a_result_may_lie_in_an_operand_by_an_attribute(rest):
    """On a line of its own, without the two braces that a config would end with."""
    inner = computation("inner", "%p = f32[256]{0} parameter(0)\n%n = f32[256]{0} negate(%p)")
    alias = "output_to_operand_aliasing={{}: (0, {})}"
    call = f"%c = f32[256]{{0}} fusion(%b), kind=kInput, {alias}, calls=%inner{rest}"
    start = "%a = f32[256]{0} parameter(0)\n%b = f32[256]{0} negate(%a)\n"
    assert kib(start + call, inner) == 2


def test_the_worst_branch_counts_however_a_conditional_names_it():
    small = computation("small", "%p = f32[256]{0} parameter(0)\n%n = f32[256]{0} negate(%p)")
    large = computation(
        "large",
        """%p = f32[256]{0} parameter(0)
        %b = f32[1024]{0} broadcast(%p)
        %n = f32[256]{0} slice(%b)""",
    )
    start = "%i = pred[] constant(true)\n%a = f32[256]{0} parameter(0)\n"
    call = "%c = f32[256]{0} conditional(%i, %a, %a), "
    by_list = call + "branch_computations={%small, %large}"
    by_name = call + "true_computation=%small, false_computation=%large"
    by_list, by_name = kib(start + by_list, small, large), kib(start + by_name, small, large)
    assert by_list == by_name == pytest.approx(1 + 1 + 4, abs=0.01)


def test_a_donated_argument_takes_the_result():
    entry = "%a = f32[256]{0} parameter(0)\n%b = f32[256]{0} negate(%a)"
    donated = (
        "HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }, "
        "entry_computation_layout={(f32[256]{0})->f32[256]{0}}"
    )
    assert (kib(entry), kib(entry, head=donated)) == (2, 1)


def test_a_loop_holds_its_state_once_and_the_worst_of_its_body():
    body = computation(
        "body",
        """%p = (s32[], f32[4,256]{1,0}) parameter(0)
        %i = s32[] get-tuple-element(%p), index=0
        %x = f32[4,256]{1,0} get-tuple-element(%p), index=1
        %y = f32[512]{0} slice(%x), metadata={op_name="jit(f)/mlp/mul"}
        %z = f32[1,256]{1,0} reduce(%y), metadata={op_name="jit(f)/mlp/sum"}
        %u = f32[4,256]{1,0} dynamic-update-slice(%x, %z, %i, %i)
        %t = (s32[], f32[4,256]{1,0}) tuple(%i, %u)""",
    )
    entry = """%i = s32[] constant(0)
        %room = f32[4,256]{1,0} custom-call(), custom_call_target="AllocateBuffer"
        %s = (s32[], f32[4,256]{1,0}) tuple(%i, %room)
        %l = (s32[], f32[4,256]{1,0}) while(%s), condition=%none, body=%body
        %g = f32[4,256]{1,0} get-tuple-element(%l), index=1"""
    moment = alive.peak(program(entry, body))
    assert moment.bytes / K == pytest.approx(4 + 2 + 1, abs=0.01)
    assert moment.at == ("l", "z")
    assert moment.buffers[0].op_name == "jit(f)/mlp/sum"  # named after what it is to hold


def test_other_memories_hold_nothing_of_the_devices():
    entry = """%a = f32[8,128]{1,0:T(8,128)} parameter(0)
        %s = (f32[8,128]{1,0:T(8,128)S(PLACE)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) \
copy-start(%a)
        %d = f32[8,128]{1,0:T(8,128)S(PLACE)} copy-done(%s)"""
    assert kib(entry.replace("PLACE", "5")) == kib(entry.replace("PLACE", "1")) == 4
    assert kib(entry.replace("S(PLACE)", "")) == 8
    on_gpu = entry.replace(":T(8,128)S(PLACE)", ":S(1)").replace(":T(8,128)", "")
    assert kib(on_gpu.replace("u32[]{:S(2)}", "u32[]")) == pytest.approx(8, abs=0.01)


def test_the_peak_is_near_the_compilers_own():
    """The figure is what `make_texts` prints; a TPU keeps so small a program in vector memory."""
    moment = alive.peak(make_texts.read("gpu"))
    assert moment.bytes == pytest.approx(22_425_060, rel=0.2)
    named = {b.op_name for b in moment.buffers if b.argument}
    assert "state.params['head']['kernel']" in named
    assert sum(b.bytes for b in moment.buffers) == moment.bytes
