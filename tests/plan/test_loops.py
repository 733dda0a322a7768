"""How often loops run, from what each compiler says of it."""

import pytest

from jaxlm.plan import hlo, loops
from jaxlm.plan.hlo import HloError
from jaxlm.plan.loops import Frame
from tests.plan.programs import computation, program

STATE = "(s32[], f32[8]{0}, s32[])"


def condition(direction: str = "LT", bound: str = "constant(12)", name: str = "condition") -> str:
    return computation(
        name,
        f"""%p = {STATE} parameter(0)
        %i = s32[]{{:T(128)}} get-tuple-element(%p), index=0
        %n = s32[] {bound}
        %lt = pred[] compare(%i, %n), direction={direction}""",
    )


STEP = "%next = s32[] add(%i, %one)"


def body(
    step: int = 1, bound: str = "%n", name: str = "body", inside: str = "", counter: str = STEP
) -> str:
    return computation(
        name,
        f"""%p = {STATE} parameter(0)
        %i = s32[] get-tuple-element(%p), index=0
        %x = f32[8]{{0}} get-tuple-element(%p), index=1
        %n = s32[] get-tuple-element(%p), index=2
        %one = s32[] constant({step})
        %more = s32[] add(%n, %one)
        {counter}
        {inside}
        %out = {STATE} tuple(%next, %x, {bound})""",
    )


def entry(start: int = 0, bound: int = 12, extra: str = "", called: str = "") -> str:
    return f"""%start = s32[] constant({start})
    %copied = s32[] copy(%start)
    %x = f32[8]{{0}} constant({{...}})
    %bound = s32[] constant({bound})
    %state = {STATE} tuple(%copied, %x, %bound)
    %loop = {STATE} while(%state), condition=%condition{called}, body=%body{called}{extra}"""


def trips(text: str) -> int:
    module = hlo.parse(text)
    return loops.trips(module, module.entry.root, Frame(module.entry))


def test_a_gpu_says_it():
    config = ', backend_config={"known_trip_count":{"n":"7"},"known_init_step":{"init":"0"}}'
    assert trips(program(entry(extra=config), condition(), body())) == 7


@pytest.mark.parametrize(
    ("direction", "start", "step", "expected"),
    [
        ("LT", 0, 1, 12),
        ("LT", 0, 2, 6),  # of a collective matmul
        ("LT", 1, 5, 3),
        ("LE", 0, 1, 13),
        ("NE", 0, 3, 4),
        ("GT", 20, -1, 8),
        ("GE", 20, -2, 5),
        ("LT", 12, 1, 0),
    ],
)
def test_a_tpus_is_counted_from_condition_start_and_step(direction, start, step, expected):
    assert trips(program(entry(start), condition(direction), body(step))) == expected


def test_a_bound_may_come_with_the_state():
    carried = condition(bound="get-tuple-element(%p), index=2")
    assert trips(program(entry(bound=9), carried, body())) == 9


def test_condition_and_step_may_be_fused():
    compared = computation(
        "compared",
        """%a = s32[] parameter(0)
        %b = s32[] constant(12)
        %lt = pred[] compare(%b, %a), direction=GT""",
    )
    fused = computation(
        "condition",
        f"""%p = {STATE} parameter(0)
        %i = s32[] get-tuple-element(%p), index=0
        %lt = pred[] fusion(%i), kind=kLoop, calls=%compared""",
    )
    added = computation(
        "added",
        """%a = s32[] parameter(0)
        %b = s32[] constant(4)
        %c = s32[] add(%b, %a)
        %t = (s32[], s32[]) tuple(%a, %c)""",
    )
    counter = """%f = (s32[], s32[]) fusion(%i), kind=kLoop, calls=%added
        %next = s32[] get-tuple-element(%f), index=1"""
    assert trips(program(entry(), compared, fused, added, body(counter=counter))) == 3


def test_a_loop_inside_may_take_its_bound_from_outside():
    """The outer loop hands its own third element on, which never changes."""
    inner_condition = condition(bound="get-tuple-element(%p), index=2", name="condition.in")
    inside = f"""%zero = s32[] constant(0)
        %state = {STATE} tuple(%zero, %x, %n)
        %inner = {STATE} while(%state), condition=%condition.in, body=%body.in"""

    def inner_trips(outer: str) -> int:
        text = program(entry(bound=5), inner_condition, body(name="body.in"), condition(), outer)
        module = hlo.parse(text)
        outside = Frame(module.computations["body"], module.entry.root, Frame(module.entry))
        return loops.trips(module, outside.computation.by_name["inner"], outside)

    assert inner_trips(body(inside=inside)) == 5
    with pytest.raises(HloError, match="loop inner"):
        inner_trips(body(inside=inside, bound="%more"))


@pytest.mark.parametrize(
    "text",
    [
        program(entry(), condition(), body(step=0)),
        program(entry(), condition(), body(step=-1)),
        program(entry(), condition("NE"), body(step=5)),
        program(entry(), condition(bound="get-tuple-element(%p), index=2"), body(bound="%more")),
        program(entry(), computation("condition", "%p = pred[] parameter(0)"), body()),
    ],
)
def test_a_loop_that_cannot_be_counted_is_an_error(text):
    with pytest.raises(HloError, match=r"loop loop .* how often it runs cannot be read"):
        trips(text)
