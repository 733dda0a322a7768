"""What holds a device's memory at the worst moment of a compiled program, by name.

The text is scheduled: instructions run in the order in which they stand, so a buffer lives from the
instruction that makes it to the last that takes it. Compilers also pack buffers, and reuse an
operand's for a result; only the plainest of that is followed, so the figure is near the compiler's,
which is the one to trust, and the names are what it is for.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

from jaxlm.plan import hlo
from jaxlm.plan.hlo import DEVICE, FUSIONS, Computation, Instruction, Module, Type, leaves

HANDS_ON = frozenset(
    {"add-dependency", "after-all", "bitcast", "domain", "opt-barrier", "while"},
)
"""Instructions that give the buffers of their first operand."""

IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
"""Instructions that write into the buffer of their first operand."""

UNTELLING = ("broadcast_in_dim", "dynamic_update_slice", "while/body")
"""Ends of names of what only makes room, or puts away."""


@dataclass(eq=False)
class Buffer:
    """A piece of memory."""

    bytes: int
    shape: str
    op_name: str
    """Where in the source's functions it was made; an argument's path for an argument."""
    name: str
    """The instruction that makes it."""
    argument: bool = False


@dataclass(frozen=True)
class Moment:
    """The worst one."""

    bytes: int
    at: tuple[str, ...]
    """The instruction; before it, the loops that it is in."""
    buffers: tuple[Buffer, ...]
    """Alive then, largest first."""


def peak(text: str) -> Moment:
    """Of a program, as `compiled.as_text()` gives it."""
    module = hlo.parse(text)
    entry = module.entry
    given: dict[int, list[Buffer]] = {}
    for number, parameter in entry.parameters.items():
        given[number] = [_buffer(module, parameter, s, argument=True) for s in parameter.shapes]
    donated = {int(result or 0) for result in _DONATED.findall(_aliases(text))}
    arguments = [b for buffers in given.values() for b in buffers]
    moment = _Flow(module, entry, given, donated).worst()
    alive = sorted((*arguments, *moment.buffers), key=lambda b: -b.bytes)
    return Moment(moment.bytes + sum(b.bytes for b in arguments), moment.at, tuple(alive))


_DONATED = re.compile(r"\{(\d*)\}: \(\d+, \{\d*\}")
_OUTPUT_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{[\d, ]*\}\)")


def _aliases(text: str) -> str:
    """The program's `input_output_alias`."""
    header = text[: text.index("\n")]
    found = re.search(r"input_output_alias=\{(.*?)\}, entry_computation_layout", header)
    return found[1] if found else ""


def _buffer(module: Module, by: Instruction, shape: hlo.Shape, argument: bool = False) -> Buffer:
    size = shape.tiled_bytes if module.space(shape) == DEVICE else 0
    return Buffer(size, str(shape), by.op_name, by.name, argument)


class _Flow:
    """Buffers through one computation; its arguments belong to the caller."""

    def __init__(
        self,
        module: Module,
        computation: Computation,
        given: dict[int, list[Buffer]],
        to_caller: Container[int],
    ):
        """`to_caller`: results, by number, that are written into buffers of the caller."""
        self._module, self._computation = module, computation
        self._given = given
        self._outside = {id(b) for buffers in given.values() for b in buffers}
        self._held: dict[str, list[Buffer]] = {}
        for instruction in computation.instructions:
            self._held[instruction.name] = self._of(instruction)
        for number, buffer in enumerate(self._held[computation.root.name]):
            if number in to_caller:
                self._outside.add(id(buffer))

    def worst(self) -> Moment:
        """The moment with most memory beside the caller's buffers."""
        instructions = self._computation.instructions
        last: dict[int, int] = {}
        for index, instruction in enumerate(instructions):
            for buffer in self._used(instruction):
                last[id(buffer)] = index
        for buffer in self._held[self._computation.root.name]:
            last[id(buffer)] = len(instructions)
        alive: dict[int, Buffer] = {}
        total, found = 0, Moment(0, (), ())
        for index, instruction in enumerate(instructions):
            dying = (
                [b for b in self._operand_buffers(instruction) if last[id(b)] == index]
                if _elementwise(instruction)
                else []
            )
            for buffer in self._held[instruction.name]:
                if id(buffer) in alive or id(buffer) in self._outside:
                    continue
                alive[id(buffer)] = buffer
                total += buffer.bytes
                twin = next((b for b in dying if b.bytes == buffer.bytes and id(b) in alive), None)
                if twin is not None:
                    total -= alive.pop(id(twin)).bytes
            inner = self._inner(instruction)
            if total + inner.bytes > found.bytes:
                holders = (*alive.values(), *inner.buffers)
                found = Moment(total + inner.bytes, (instruction.name, *inner.at), holders)
            for buffer in self._used(instruction):
                if last[id(buffer)] == index and id(buffer) in alive:
                    total -= alive.pop(id(buffer)).bytes
        return found

    def name_state(self) -> None:
        """Names the buffers of a loop's state that the compiler made after what fills them."""
        root = self._computation.root
        for buffer, name in zip(self._given[0], root.operands, strict=False):
            telling = "/" in buffer.op_name and not buffer.op_name.endswith(UNTELLING)
            if not telling and not buffer.argument:
                writer = self._computation.by_name[name]
                found = _origin(self._module, self._computation, writer)
                buffer.op_name = found or buffer.op_name

    def _used(self, instruction: Instruction) -> list[Buffer]:
        return [*self._operand_buffers(instruction), *self._held[instruction.name]]

    def _operand_buffers(self, instruction: Instruction) -> list[Buffer]:
        return [b for name in instruction.operands for b in self._held[name]]

    def _inner(self, instruction: Instruction) -> Moment:
        """Of the computations that an instruction runs."""
        if instruction.opcode not in ("call", "conditional", "while"):
            return Moment(0, (), ())
        operands = [self._held[name] for name in instruction.operands]
        if instruction.opcode == "while":
            body = self._module.called(instruction, "body")
            flow = _Flow(self._module, body, {0: operands[0]}, range(len(operands[0])))
            flow.name_state()
            return flow.worst()
        results = range(len(self._held[instruction.name]))
        if instruction.opcode == "call":
            called = self._module.called(instruction, "to_apply")
            return _Flow(self._module, called, dict(enumerate(operands)), results).worst()
        branches = [self._module.computations[name] for name in instruction.branches]
        moments = (
            _Flow(self._module, branch, {0: taken}, results).worst()
            for branch, taken in zip(branches, operands[1:], strict=True)
        )
        return max(moments, key=lambda m: m.bytes)

    def _of(self, at: Instruction) -> list[Buffer]:
        """The buffers of an instruction's results, one for each array of its type."""
        first = self._held[at.operands[0]] if at.operands else []
        match at.opcode:
            case "parameter":
                return self._given[int(at.inside)]
            case "tuple":
                return self._operand_buffers(at)
            case "get-tuple-element":
                start = self._computation.by_name[at.operands[0]]
                return _element(start.type, first, int(at.word("index") or 0))
            case opcode if opcode in HANDS_ON:
                return first
            case opcode if opcode.endswith("-done"):
                start = self._computation.by_name[at.operands[0]]
                element = 0 if opcode == "copy-done" or not isinstance(start.type, tuple) else 1
                return _element(start.type, first, element)
            case opcode if opcode.endswith("-update") and len(first) == len(at.shapes):
                return first
        made = [_buffer(self._module, at, shape) for shape in at.shapes]
        if at.opcode == "fusion" and not at.op_name:
            for element, buffer in enumerate(made):
                buffer.op_name = _origin(self._module, self._computation, at, element=element)
        offset = 0
        if at.opcode.endswith(("-start", "-update")) and isinstance(at.type, tuple):
            if at.opcode == "copy-start":
                made[1] = first[0]
            else:
                names = at.operands[1 if at.opcode.endswith("-update") else 0 :]
                given = [b for name in names for b in self._held[name]]
                offset = len(list(leaves(at.type[0])))
                made[:offset] = given[:offset] if len(given) >= offset else made[:offset]
        for index, number in self._written_in_place(at):
            if offset + index < len(made) and self._held[at.operands[number]]:
                made[offset + index] = self._held[at.operands[number]][0]
        return made

    def _written_in_place(self, at: Instruction) -> list[tuple[int, int]]:
        """(result, operand) pairs that share a buffer."""
        if at.opcode.removesuffix("-start") in IN_PLACE:
            return [(0, 0)]
        aliased, pairs = at.attribute("output_to_operand_aliasing"), []
        if aliased is not None and at.opcode in ("custom-call", "fusion"):
            found = _OUTPUT_ALIAS.findall(aliased[: aliased.index(")}") + 1])
            pairs = [(int(result or 0), int(number)) for result, number in found]
        if at.opcode in FUSIONS:
            called = self._module.called(at)
            written = (_written(self._module, called, result) for result in called.results)
            pairs += [(index, n) for index, n in enumerate(written) if n is not None]
        return pairs


def _element(of: Type, buffers: list[Buffer], index: int) -> list[Buffer]:
    """The buffers of one element of a tuple."""
    if isinstance(of, hlo.Shape):
        return buffers
    before = sum(1 for part in of[:index] for _ in leaves(part))
    return buffers[before : before + sum(1 for _ in leaves(of[index]))]


def _written(module: Module, called: Computation, result: Instruction) -> int | None:
    """The parameter of a fusion that a result of it is written into, if it is."""
    while result.opcode == "bitcast":
        result = called.by_name[result.operands[0]]
    if result.opcode == "fusion":
        inner = module.called(result)
        number = _written(module, inner, inner.root)
        if number is None:
            return None
        base = called.by_name[result.operands[number]]
    elif result.opcode in IN_PLACE:
        base = called.by_name[result.operands[0]]
    else:
        return None
    while base.opcode == "bitcast":
        base = called.by_name[base.operands[0]]
    return int(base.inside) if base.opcode == "parameter" else None


def _origin(
    module: Module,
    computation: Computation,
    at: Instruction,
    callers: tuple[tuple[Computation, Instruction], ...] = (),
    element: int = 0,
) -> str:
    """Where a stored value was computed: the first telling name on the way back from its store."""
    if at.opcode == "parameter" and callers:
        outer, call = callers[0]
        given = outer.by_name[call.operands[int(at.inside)]]
        return _origin(module, outer, given, callers[1:])
    if at.opcode in FUSIONS:
        called = module.called(at)
        results = called.results
        result = results[element] if len(results) > 1 else results[0]
        found = _origin(module, called, result, ((computation, at), *callers))
        return found or at.op_name
    stores = at.opcode in IN_PLACE or at.opcode == "fusion-done"
    if at.op_name and not at.op_name.endswith(UNTELLING) and not stores:
        return at.op_name
    if not at.operands:
        return ""
    element = int(at.word("index") or 0) if at.opcode == "get-tuple-element" else 0
    taken = at.operands[1 if at.opcode in IN_PLACE else 0]
    return _origin(module, computation, computation.by_name[taken], callers, element)


def _elementwise(instruction: Instruction) -> bool:
    """Whether a result may take the place of an operand of the same size."""
    return instruction.opcode == "fusion" and instruction.word("kind") == "kLoop"
