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
from dataclasses import dataclass, replace

from jaxlm.plan import groups
from jaxlm.plan.hlo import BITS, Computation, HloError, Instruction, Module, Shape, leaves

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
    count: int
    """Executions in a step."""
    op_name: str
    fused: bool
    """Part of a fusion, or beside a matrix product: its kind is what it amounts to."""
    asynchronous: bool
    """In a start and a done, so that other work may run meanwhile."""
    ways: int
    """Devices of a group."""
    shapes: tuple[str, ...]
    """Results, as `bf16[256,1024]`."""
    loops: tuple[int, ...]
    """Passes of the loops around it, outermost first."""
    name: str
    """The instruction, to find it in the text."""
    between_slices: bool = False


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
        self._fused: dict[str, tuple[Collective, ...]] = {}
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
        ways = len(grouped[0])
        whole, share = _whole_and_share(kind, ways)
        in_matmul = permutes and _in_matmul(instruction, computation)
        if in_matmul:
            sums = _accumulates(self._module, computation, names[0], instruction.op_name)
            kind = "reduce-scatter" if sums else "all-gather"
        axes = groups.axes(grouped, self._mesh)
        results = _results(instruction)
        if kind in ("all-reduce", "reduce-scatter") and len(results) == len(operands):
            operands = [_wider(a, b) for a, b in zip(operands, results, strict=True)]
        return tuple(
            Collective(
                kind=kind,
                axes=axes,
                dtype=dtype,
                payload_bytes=whole * size,
                wire_bytes=round(whole * size * share),
                count=1,
                op_name=instruction.op_name,
                fused=in_matmul,
                asynchronous=instruction.opcode.endswith("-start"),
                ways=ways,
                shapes=tuple(str(s) for s in results if s.dtype == dtype),
                loops=(),
                name=instruction.name,
            )
            for dtype, size in _by_dtype(operands).items()
        )

    def _inside(self, fusion: Instruction) -> tuple[Collective, ...]:
        """Of a fusion: its collectives, an all-reduce that it slices being a reduce-scatter."""
        name = fusion.called("calls") or ""
        if name not in self._fused:
            called = self._module.computations[name]
            self._fused[name] = tuple(
                replace(_scattered(c, called), fused=True, asynchronous=self._chains.start(called))
                for i in called.instructions
                if not self._chains.passes_by(i, called)
                for c in self.of(i, called)
            )
        return tuple(
            replace(
                c,
                name=fusion.name,
                op_name=c.op_name or fusion.op_name,
                asynchronous=c.asynchronous or fusion.opcode.endswith("-start"),
            )
            for c in self._fused[name]
        )

    def _send(self, instruction: Instruction, computation: Computation) -> tuple[Collective, ...]:
        """Of a send to other slices."""
        found = _TRANSFER.search(instruction.after)
        if found is None:
            return ()
        kind = found[1].lower().replace("_", "-")
        ways = _slices(instruction)
        whole, share = _whole_and_share(kind, ways)
        shapes = computation.by_name[instruction.operands[0]].shapes
        return tuple(
            Collective(
                kind=kind,
                axes=("data",),
                dtype=dtype,
                payload_bytes=whole * size,
                wire_bytes=round(whole * size * share),
                count=1,
                op_name=instruction.op_name,
                fused=False,
                asynchronous=True,
                ways=ways,
                shapes=tuple(str(s) for s in shapes if s.dtype == dtype),
                loops=(),
                name=instruction.name,
                between_slices=True,
            )
            for dtype, size in _by_dtype(list(shapes)).items()
        )


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


def _by_dtype(shapes: list[Shape]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for shape in shapes:
        sizes[shape.dtype] = sizes.get(shape.dtype, 0) + shape.bytes
    return sizes


def _results(instruction: Instruction) -> tuple[Shape, ...]:
    """Of a start, what its done gives: the second part of (operands, results, ...)."""
    of = instruction.type
    if instruction.opcode.endswith("-start") and isinstance(of, tuple) and len(of) > 1:
        return tuple(leaves(of[1]))
    return instruction.shapes


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
        if _multiplies(module, at, op_name) or at.opcode == "constant":
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


def _multiplies(module: Module, instruction: Instruction, op_name: str) -> bool:
    """Whether an instruction is the matrix product of that name, or fuses it."""
    if instruction.opcode != "fusion":
        return instruction.opcode in ("dot", "convolution") and instruction.op_name == op_name
    called = module.computations[instruction.called("calls") or ""]
    return any(_multiplies(module, i, op_name) for i in called.instructions)
