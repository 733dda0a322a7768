"""How often a loop of a compiled program runs.

A GPU's program says so. A TPU's does not: there the condition compares a counter with a bound, the
counter's start stands where the loop is called and its step in the body.
"""

import re
from dataclasses import dataclass, replace

from jaxlm.plan.hlo import Computation, HloError, Instruction, Module

KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')

TRANSPARENT = frozenset(
    {"bitcast", "convert", "copy", "copy-start", "copy-done", "reshape", "broadcast"}
)
"""Instructions that hand a number on."""


@dataclass(frozen=True)
class Frame:
    """A computation as it is being run, and the loop that runs it."""

    computation: Computation
    loop: Instruction | None = None
    caller: "Frame | None" = None


@dataclass(frozen=True)
class Carried:
    """An element of a loop's state at the start of a pass, plus a constant."""

    index: int
    plus: int = 0


@dataclass(frozen=True)
class State:
    """The loop's whole state."""


type Value = int | Carried | State | None
"""What is known of an instruction's result; None is nothing."""


def trips(module: Module, loop: Instruction, frame: Frame) -> int:
    """Passes of a `while` that stands in `frame`. `HloError` if they cannot be told."""
    known = KNOWN.search(loop.after)
    if known:
        return int(known[1])
    found = _counted(module, loop, frame)
    if found is None:
        raise HloError(
            f"loop {loop.name} ({loop.op_name or 'no op_name'}): how often it runs cannot be read "
            f"from its condition {loop.called('condition')}; only loops that count to a constant "
            f"can be planned"
        )
    return found


def _counted(module: Module, loop: Instruction, frame: Frame) -> int | None:
    condition, body = module.called(loop, "condition"), module.called(loop, "body")
    compared = _comparison(module, condition, {0: State()})
    if compared is None:
        return None
    counter, direction, bound = compared
    if not isinstance(counter, Carried):
        counter, bound = bound, counter
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    inner = Frame(body, loop, frame)
    start, end = _initial(module, counter, inner), _initial(module, bound, inner)
    if not isinstance(counter, Carried) or start is None or end is None:
        return None
    if isinstance(bound, Carried) and _step(module, bound.index, body) != 0:
        return None
    step = _step(module, counter.index, body)
    return None if not step else _passes(start, end, step, direction)


def _passes(start: int, end: int, step: int, direction: str) -> int | None:
    distance = end - start
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction in ("LE", "GE"):
        distance += 1 if direction == "LE" else -1
    if (step > 0) != (direction in ("LT", "LE")):
        return None
    return max(0, -(-distance // step))


def _comparison(
    module: Module, computation: Computation, arguments: dict[int, Value]
) -> tuple[Value, str, Value] | None:
    root = computation.root
    while root.opcode in TRANSPARENT:
        root = computation.by_name[root.operands[0]]
    if root.opcode == "fusion":
        given = [_value(module, computation, name, arguments) for name in root.operands]
        return _comparison(module, module.called(root), dict(enumerate(given)))
    if root.opcode != "compare":
        return None
    left, right = (_value(module, computation, name, arguments) for name in root.operands)
    return left, root.word("direction") or "", right


def _initial(module: Module, value: Value, frame: Frame) -> int | None:
    """A value at the first pass of the loop that runs `frame`."""
    if isinstance(value, int) or value is None:
        return value
    if frame.loop is None or frame.caller is None or isinstance(value, State):
        return None
    outside = frame.caller
    arguments: dict[int, Value] = {0: State()} if outside.loop is not None else {}
    operand = frame.loop.operands[0]
    start = _value(module, outside.computation, operand, arguments, value.index)
    if isinstance(start, Carried) and _step(module, start.index, outside.computation) != 0:
        return None  # differs from pass to pass of the loop outside
    first = _initial(module, start, outside)
    return None if first is None else first + value.plus


def _step(module: Module, index: int, body: Computation) -> int | None:
    """What a pass adds to an element of the state; None if it cannot be told."""
    after = _value(module, body, body.root.name, {0: State()}, index)
    return after.plus if isinstance(after, Carried) and after.index == index else None


def _value(
    module: Module,
    computation: Computation,
    name: str,
    arguments: dict[int, Value],
    index: int | None = None,
) -> Value:
    """What is known of an instruction, or of one element of the tuple that it gives."""
    at = computation.by_name[name]
    match at.opcode:
        case "parameter":
            value = arguments.get(int(at.inside))
            return Carried(index) if isinstance(value, State) and index is not None else value
        case "constant":
            return int(at.inside) if re.fullmatch(r"-?\d+", at.inside) else None
        case "get-tuple-element" if index is None:
            element = int(at.word("index") or 0)
            return _value(module, computation, at.operands[0], arguments, element)
        case "tuple" if index is not None:
            return _value(module, computation, at.operands[index], arguments)
        case "opt-barrier":
            return _value(module, computation, at.operands[0], arguments, index)
        case "fusion" | "call":
            given = [_value(module, computation, o, arguments) for o in at.operands]
            called = module.called(at, "calls" if at.opcode == "fusion" else "to_apply")
            return _value(module, called, called.root.name, dict(enumerate(given)), index)
        case "add" | "subtract":
            left, right = (_value(module, computation, o, arguments) for o in at.operands)
            return _sum(left, right, 1 if at.opcode == "add" else -1)
        case opcode if opcode in TRANSPARENT:
            return _value(module, computation, at.operands[0], arguments)
    return None


def _sum(left: Value, right: Value, sign: int) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return left + sign * right
    if isinstance(left, Carried) and isinstance(right, int):
        return replace(left, plus=left.plus + sign * right)
    if isinstance(right, Carried) and isinstance(left, int) and sign == 1:
        return replace(right, plus=right.plus + left)
    return None
