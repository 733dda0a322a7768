"""Bytes that the instructions of a compiled program read and write of memory.

Each instruction that runs by itself reads its operands and writes its results once; what stays
inside a fusion, or in a TPU's vector memory, moves nothing. A slice counts as what it cuts out, and
an update in place as what it puts in.

Overstated where a cache (a GPU's L2, 30 to 130 MB) still holds what was just written, and where a
copy is optimized away at run time. Understated where a kernel reads an operand more than once (a
large matrix product by blocks), and where a gather reads whole lines for single elements.
"""

from collections.abc import Iterable
from typing import NamedTuple

from jaxlm.plan.collectives import Chains
from jaxlm.plan.hlo import DEVICE, HOST, Computation, Instruction, Module, Shape

FREE = frozenset(
    {
        "add-dependency",
        "after-all",
        "async-start",
        "bitcast",
        "call",
        "call-start",
        "conditional",
        "constant",
        "domain",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "partition-id",
        "recv",
        "replica-id",
        "tuple",
        "while",
    }
)
"""Move nothing, or what stands in the computations that they call."""

FREE_CALLS = frozenset({"AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast"})
"""Custom calls that move nothing."""

CUTS = frozenset({"dynamic-slice", "gather", "slice"})
"""Read of their first operand what they give."""

PUTS = {"dynamic-update-slice": 1, "scatter": 2}
"""Write into their first operand what this operand holds."""


class Moved(NamedTuple):
    """Bytes to and from the device's memory, and the host's."""

    hbm: float = 0.0
    host: float = 0.0


class Accesses:
    """Of the instructions of one program."""

    def __init__(self, module: Module):
        self._module = module
        self._read: dict[tuple[str, int], float] = {}
        self._chains = Chains(module)

    def of(self, instruction: Instruction, computation: Computation) -> Moved:
        """Of one execution of an instruction that stands outside fusions."""
        opcode = instruction.opcode
        if opcode in FREE or opcode.endswith(("-done", "-update")):
            return Moved()
        if opcode == "custom-call" and instruction.word("custom_call_target") in FREE_CALLS:
            return Moved()
        operands = [computation.by_name[name].shapes for name in instruction.operands]
        results = instruction.results
        kind = opcode.removesuffix("-start")
        if instruction.called("calls") is not None:
            return self._moved(self._called(self._module.called(instruction), operands, results))
        if kind in CUTS:
            size = sum(s.tiled_bytes for s in results)
            return self._moved([(size, operands[0][0]), (size, results[0])])
        if kind in PUTS:
            put = operands[PUTS[kind]][0]
            return self._moved([(put.tiled_bytes, results[0]), (put.tiled_bytes, put)])
        return self._moved((s.tiled_bytes, s) for shapes in (*operands, results) for s in shapes)

    def _moved(self, parts: Iterable[tuple[float, Shape]]) -> Moved:
        """The sum of (bytes, array that they are of)."""
        hbm = host = 0.0
        for size, shape in parts:
            space = self._module.space(shape)
            hbm += size * (space == DEVICE)
            host += size * (space == HOST)
        return Moved(hbm, host)

    def _called(
        self, called: Computation, operands: list[tuple[Shape, ...]], results: tuple[Shape, ...]
    ) -> Iterable[tuple[float, Shape]]:
        for number, shapes in enumerate(operands):
            share = self._share_read(called, number) if len(shapes) == 1 else 1.0
            yield from ((share * shape.tiled_bytes, shape) for shape in shapes)
        for shape, share in zip(results, self._shares_written(called, len(results)), strict=True):
            yield share * shape.tiled_bytes, shape

    def _share_read(self, called: Computation, number: int) -> float:
        """How much of a parameter a fusion reads: 1, or what it cuts out of it."""
        key = (called.name, number)
        if key not in self._read:
            parameter = called.parameters[number]
            elements = self._elements_read(called, parameter)
            whole = max(1, parameter.shapes[0].elements)
            self._read[key] = min(1.0, elements / whole)
        return self._read[key]

    def _elements_read(self, called: Computation, source: Instruction) -> float:
        total = 0.0
        for user, index in called.users[source.name]:
            if user.opcode in CUTS and index == 0:
                total += user.shapes[0].elements
            elif user.opcode == "bitcast":
                total += self._elements_read(called, user)
            elif user.opcode == "fusion":
                inner = self._module.called(user)
                total += self._share_read(inner, index) * source.shapes[0].elements
            elif not (user.opcode in PUTS and index == 0) and not self._hands_on(called, user):
                return source.shapes[0].elements
        return total

    def _shares_written(self, called: Computation, results: int) -> list[float]:
        """How much of each result a fusion writes: 1, or what it puts into it in place."""
        shares = [self._share_written(called, result) for result in called.results]
        return shares if len(shares) == results else [1.0] * results

    def _share_written(self, called: Computation, result: Instruction) -> float:
        while result.opcode == "bitcast":
            result = called.by_name[result.operands[0]]
        if result.opcode == "fusion":
            return self._shares_written(self._module.called(result), 1)[0]
        if result.opcode == "parameter" or self._hands_on(called, result):
            return 0.0
        if result.opcode not in PUTS:
            return 1.0
        put = called.by_name[result.operands[PUTS[result.opcode]]].shapes[0]
        return min(1.0, put.elements / max(1, result.shapes[0].elements))

    def _hands_on(self, called: Computation, instruction: Instruction) -> bool:
        """Whether an instruction of a fusion only passes a buffer by."""
        if instruction.opcode == "custom-call":
            return instruction.word("custom_call_target") == "AsyncCollectiveDone"
        return instruction.opcode == "tuple" or self._chains.passes_by(instruction, called)
