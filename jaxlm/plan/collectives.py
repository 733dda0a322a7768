"""The collectives of a compiled program: what they move, between which devices, in which form.

- a plain instruction, or a `-start`, whose `-done` counts for nothing; or one in a computation that
  is started, as on the SparseCore of TPU 7x;
- a fusion with a collective in it; TPU prints a reduce-scatter as an all-reduce and a dynamic-slice
  in one fusion;
- a chain of fusions that carry one collective along beside their own work, TPU's asynchronous form:
  it is repeated in each, and counts where it starts;
- a loop of permutes around matrix products, TPU's collective matmul, called by what it replaces;
- a send to another slice, with the kind of transfer in its attributes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxlm.plan import groups
from jaxlm.plan.hlo import BITS, Computation, HloError, Instruction, Module, Shape

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)

MATMUL_LOOP = "windowed_dot_general_body"
"""In the name of the body of TPU's collective matmul."""


@dataclass(frozen=True)
class Collective:
    """A collective of one type; an instruction that moves two types makes two."""

    kind: str
    axes: tuple[str, ...]
    """Axes of the mesh along which the devices of a group differ."""
    dtype: str
    payload_bytes: int
    """Of the whole array that is gathered, reduced or scattered; of a permute, what it sends."""
    wire_bytes: int
    """What a device sends in one execution: (n - 1) / n of the payload in a group of n, twice that
    for an all-reduce, the whole payload for a permute."""
    op_name: str
    shapes: tuple[str, ...]
    """Results, as `bf16[256,1024]`."""
    name: str
    """The instruction, to find it in the text."""
    count: int = 1
    """Executions in a step."""
    loops: tuple[int, ...] = ()
    """Passes of the loops around it, outermost first."""
    fused: bool = False
    """Part of a fusion, or beside a matrix product: its kind is what it amounts to."""
    asynchronous: bool = False
    """In a start and a done, so that other work may run meanwhile."""
    between_slices: bool = False

    @property
    def bytes(self) -> int:
        """What a device sends in a step."""
        return self.count * self.wire_bytes


class Chains:
    """Collectives that fusions carry along, each fusion doing a part: TPU's asynchronous form."""

    def __init__(self, module: Module):
        self._channels = {
            channel
            for computation in module.computations.values()
            if self.start(computation)
            for i in computation.instructions
            if i.opcode in KINDS and (channel := i.word("channel_id"))
        }

    def start(self, computation: Computation) -> bool:
        """Whether a fusion starts one."""
        return computation.root.word("custom_call_target") == "AsyncCollectiveStart"

    def passes_by(self, instruction: Instruction, computation: Computation) -> bool:
        """Whether an instruction of a fusion is a collective that has been started elsewhere."""
        return (
            instruction.opcode in KINDS
            and instruction.word("channel_id") in self._channels
            and not self.start(computation)
        )


class Reader:
    """Finds the collectives in instructions."""

    def __init__(self, module: Module, mesh_shape: dict[str, int]):
        self._module = module
        self._mesh = mesh_shape
        self._devices = math.prod(mesh_shape.values())
        self._chains = Chains(module)

    def of(self, instruction: Instruction, computation: Computation) -> tuple[Collective, ...]:
        """Of one execution of an instruction, outside of loops (`count` 1)."""
        opcode = instruction.opcode
        if opcode.endswith(("-done", "-update")):
            return ()
        kind = opcode.removesuffix("-start")
        if kind in KINDS:
            return self._plain(instruction, computation, kind)
        if kind == "send":
            return self._send(instruction, computation)
        if kind == "fusion":
            return self._inside(instruction)
        return ()

    def _plain(
        self, instruction: Instruction, computation: Computation, kind: str
    ) -> tuple[Collective, ...]:
        permutes = kind == "collective-permute"
        names = instruction.operands[: 1 if permutes else None]
        operands = [s for name in names for s in computation.by_name[name].shapes]
        grouped = groups.of(instruction, self._devices)
        if permutes:
            grouped = tuple(pair for pair in grouped if len(set(pair)) > 1)
        if not grouped or len(grouped[0]) == 1:
            return ()
        results = instruction.results
        if kind in ("all-reduce", "reduce-scatter") and len(results) == len(operands):
            operands = [_wider(a, b) for a, b in zip(operands, results, strict=True)]
        found = _by_dtype(
            instruction, kind, groups.axes(grouped, self._mesh), len(grouped[0]), operands, results
        )
        started = instruction.opcode.endswith("-start")
        found = [replace(c, asynchronous=started) for c in found]
        if permutes and _in_matmul(instruction, computation):
            sums = _accumulates(self._module, computation, names[0], instruction.op_name)
            kind = "reduce-scatter" if sums else "all-gather"
            found = [replace(c, kind=kind, fused=True) for c in found]
        return tuple(found)

    def _inside(self, fusion: Instruction) -> tuple[Collective, ...]:
        """Of a fusion: its collectives, an all-reduce that it slices being a reduce-scatter."""
        called = self._module.called(fusion)
        started = self._chains.start(called) or fusion.opcode.endswith("-start")
        return tuple(
            replace(
                _scattered(c, called),
                name=fusion.name,
                op_name=c.op_name or fusion.op_name,
                fused=True,
                asynchronous=started,
            )
            for i in called.instructions
            if not self._chains.passes_by(i, called)
            for c in self.of(i, called)
        )

    def _send(self, instruction: Instruction, computation: Computation) -> tuple[Collective, ...]:
        """Of a send to other slices."""
        found = _TRANSFER.search(instruction.after)
        if found is None:
            return ()
        kind = found[1].lower().replace("_", "-")
        sent = computation.by_name[instruction.operands[0]].shapes
        found = _by_dtype(instruction, kind, ("data",), _slices(instruction), sent, sent)
        return tuple(replace(c, asynchronous=True, between_slices=True) for c in found)


_TRANSFER = re.compile(r'_xla_megascale_transfer_type="?(\w+)')
_TARGET = re.compile(r'_xla_megascale_target="\{([\d,:]+)\}')


def _slices(instruction: Instruction) -> int:
    """Slices that a send is between: `{1,2}x{0:7}` is slices 1 and 2, devices 0 to 7 of each."""
    found = _TARGET.search(instruction.after)
    if found is None:
        raise HloError(f"send {instruction.name} to other slices does not say to which")
    ranges = [part.split(":") for part in found[1].split(",")]
    return sum(int(r[-1]) - int(r[0]) + 1 for r in ranges)


def _whole_and_share(kind: str, ways: int) -> tuple[int, float]:
    """How many times its operand the whole array is, and how much of that a device sends."""
    if kind == "all-gather":
        return ways, (ways - 1) / ways
    if kind in ("reduce-scatter", "all-to-all", "all-reduce"):
        return 1, (ways - 1) / ways * (2 if kind == "all-reduce" else 1)
    return 1, 1.0


def _wider(operand: Shape, result: Shape) -> Shape:
    """What a reduction moves: TPU takes bfloat16 and sums in the result's float32."""
    return replace(operand, dtype=max(operand.dtype, result.dtype, key=lambda d: BITS[d]))


def _by_dtype(
    instruction: Instruction,
    kind: str,
    axes: tuple[str, ...],
    ways: int,
    operands: Sequence[Shape],
    results: Sequence[Shape],
) -> Iterator[Collective]:
    """The collective that an instruction is, one for each type that it moves."""
    whole, share = _whole_and_share(kind, ways)
    for dtype in dict.fromkeys(s.dtype for s in operands):
        payload = whole * sum(s.bytes for s in operands if s.dtype == dtype)
        yield Collective(
            kind=kind,
            axes=axes,
            dtype=dtype,
            payload_bytes=payload,
            wire_bytes=round(payload * share),
            op_name=instruction.op_name,
            shapes=tuple(str(s) for s in results if s.dtype == dtype),
            name=instruction.name,
        )


def _scattered(collective: Collective, fused: Computation) -> Collective:
    """An all-reduce, or the reduce-scatter that it is when only a slice of it leaves the fusion."""
    kept = sum(s.bytes for s in fused.root.shapes)
    slices = any(i.opcode == "dynamic-slice" for i in fused.instructions)
    if collective.kind != "all-reduce" or not slices or kept >= collective.payload_bytes:
        return collective
    return replace(
        collective,
        kind="reduce-scatter",
        wire_bytes=collective.wire_bytes // 2,
        shapes=tuple(str(s) for s in fused.root.shapes),
    )


def _in_matmul(permute: Instruction, computation: Computation) -> bool:
    """Whether a permute stands in for the gather or scatter around a matrix product.

    The partitioner names what it makes after the product.
    """
    return MATMUL_LOOP in computation.name or permute.op_name.endswith("dot_general")


def _accumulates(module: Module, computation: Computation, name: str, op_name: str) -> bool:
    """Whether what a permute around a product hands on is a sum of products, or a sum's zero."""
    waiting, seen = [name], set()
    while waiting:
        at = computation.by_name[waiting.pop()]
        if at.name in seen:
            continue
        seen.add(at.name)
        if _multiplies(module, computation, at, op_name) or at.opcode == "constant":
            return True
        if at.opcode == "get-tuple-element" and _carried(computation, at):
            after = computation.root.operands[int(at.word("index") or 0)]
            waiting.append(after)
        elif at.opcode in _HANDS_ON or at.op_name == op_name:
            waiting.extend(at.operands)
    return False


_HANDS_ON = frozenset(
    {"bitcast", "broadcast", "copy", "copy-start", "copy-done", "get-tuple-element", "tuple"}
)


def _carried(body: Computation, at: Instruction) -> bool:
    """Whether an instruction takes an element of the state of the loop that it stands in."""
    return body.by_name[at.operands[0]].opcode == "parameter" and body.root.opcode == "tuple"


def _multiplies(
    module: Module, computation: Computation, instruction: Instruction, op_name: str
) -> bool:
    """Whether an instruction is the matrix product of that name, or fuses it."""
    parts = module.fused(instruction, computation)
    return any(i.opcode in ("dot", "convolution") and i.op_name == op_name for i, _ in parts)
