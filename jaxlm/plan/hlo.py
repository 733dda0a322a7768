"""The text of a compiled program (optimized HLO), read into computations and instructions.

TPU and GPU compilers print the same language with different habits; what an instruction means is
left to who walks over them.
"""

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from jaxlm.errors import UserError

DEVICE, VMEM, HOST = 0, 1, 5
"""Memory spaces, as in a layout's `S(5)`: the device's memory (the default), a TPU's on-chip
vector memory, and pinned memory of the host."""

BITS = {
    "pred": 8,
    "s2": 2,
    "u2": 2,
    "s4": 4,
    "u4": 4,
    "s8": 8,
    "u8": 8,
    "s16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "s64": 64,
    "u64": 64,
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "f4e2m1fn": 4,
    "f8e3m4": 8,
    "f8e4m3": 8,
    "f8e4m3fn": 8,
    "f8e4m3fnuz": 8,
    "f8e4m3b11fnuz": 8,
    "f8e5m2": 8,
    "f8e5m2fnuz": 8,
    "f8e8m0fnu": 8,
    "token": 0,
    "opaque": 0,
}
"""Bits of an element."""


FUSIONS = frozenset({"fusion", "fusion-start"})
"""Instructions that stand for those of a computation, which run as one."""


class HloError(UserError):
    """A program that cannot be read: a form of text that this version does not know."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An array: its type, dimensions and layout."""

    dtype: str
    dims: tuple[int, ...]
    layout: str
    """As printed, without its braces: `1,0:T(8,128)(2,1)S(1)`."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the elements alone."""
        return -(-self.elements * BITS[self.dtype] // 8)

    @property
    def space(self) -> int:
        """The memory that it lies in."""
        found = re.search(r"S\((\d+)\)", self.layout)
        return int(found[1]) if found else DEVICE

    @property
    def tiled_bytes(self) -> int:
        """Bytes with the padding of a TPU's tiles: `T(8,128)` rounds up two dimensions."""
        order, _, tiles = self.layout.partition(":")
        tile = re.match(r"T\(([\d,]+)\)", tiles)
        if not tile or not order:
            return self.bytes
        dims = [self.dims[int(d)] for d in order.split(",")]  # minor first
        for i, size in enumerate(reversed(ints(tile[1]))):
            if i < len(dims):
                dims[i] = -(-dims[i] // size) * size
        return -(-math.prod(dims) * BITS[self.dtype] // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


type Type = Shape | tuple[Type, ...]
"""Of an instruction: an array, or a tuple of types."""


def leaves(of: Type) -> Iterator[Shape]:
    """The arrays of a type, in order."""
    if isinstance(of, Shape):
        yield of
    else:
        for part in of:
            yield from leaves(part)


@dataclass(slots=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    type_text: str
    inside: str
    """What stands in the parentheses: operands, a parameter's number, a constant's value."""
    after: str
    """What stands behind them: attributes, metadata, the backend's config."""
    root: bool

    @property
    def type(self) -> Type:
        """What it gives."""
        return _type(self.type_text)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays it gives."""
        return _shapes(self.type_text)

    @property
    def results(self) -> tuple[Shape, ...]:
        """Of a start, the arrays that its done gives; of all else, those that it gives."""
        of = self.type
        if not self.opcode.endswith("-start") or isinstance(of, Shape) or len(of) < 2:
            return self.shapes
        return tuple(leaves(of[0 if self.opcode == "copy-start" else 1]))

    @property
    def operands(self) -> list[str]:
        """Names of the instructions that it takes."""
        return _NAME.findall(self.inside)

    @property
    def op_name(self) -> str:
        """Where in the source's functions it comes from, as JAX names it; "" if unknown."""
        found = _OP_NAME.search(self.after)
        return found[1].replace("\\'", "'") if found else ""

    def attribute(self, key: str) -> str | None:
        """The text after `key=`, to the end of the line; None if it has no such attribute."""
        found = _attribute(key).search(self.after)
        return self.after[found.end() :] if found else None

    def called(self, key: str) -> str | None:
        """The computation that an attribute names; None if it has no such attribute."""
        found = _NAME.match(self.attribute(key) or "")
        return found[1] if found else None

    @property
    def branches(self) -> list[str]:
        """The computations that a conditional chooses from, in the order of their operands."""
        text = self.attribute("branch_computations")
        if text is not None:
            return _NAME.findall(text[: text.index("}")])
        named = (self.called("true_computation"), self.called("false_computation"))
        return [name for name in named if name is not None]

    def ints(self, key: str) -> tuple[int, ...]:
        """The numbers of an attribute such as `dimensions={0,1}`; () if it has none."""
        text = self.attribute(key)
        return () if text is None else ints(text[1 : text.index("}")])

    def word(self, key: str) -> str | None:
        """An attribute of one word or number, without its quotes."""
        text = self.attribute(key)
        return None if text is None else re.match(r'"?([^",{} ]*)', text)[1]  # pyright: ignore[reportOptionalSubscript]


@dataclass
class Computation:
    """A function of the program; instructions stand in the order in which they run."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Its instructions by name."""
        return {i.name: i for i in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """What it returns."""
        return next((i for i in self.instructions if i.root), self.instructions[-1])

    @property
    def results(self) -> list[Instruction]:
        """What it returns, the elements of a tuple one by one."""
        root = self.root
        return [self.by_name[n] for n in root.operands] if root.opcode == "tuple" else [root]

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Its parameters by number."""
        return {int(i.inside): i for i in self.instructions if i.opcode == "parameter"}

    @cached_property
    def users(self) -> dict[str, list[tuple[Instruction, int]]]:
        """Of each instruction by name: who takes it, as which operand."""
        found: dict[str, list[tuple[Instruction, int]]] = {i.name: [] for i in self.instructions}
        for user in self.instructions:
            for index, operand in enumerate(user.operands):
                found[operand].append((user, index))
        return found


@dataclass
class Module:
    """A compiled program."""

    computations: dict[str, Computation]
    entry: Computation
    tpu: bool
    """Of a TPU: arrays lie in tiles."""

    def called(self, by: Instruction, key: str = "calls") -> Computation:
        """The computation that an attribute names; `HloError` if there is none."""
        name = by.called(key)
        if name not in self.computations:
            raise HloError(f"{by.opcode} {by.name} calls {name}, and it is missing")
        return self.computations[name]

    def fused(
        self, instruction: Instruction, computation: Computation
    ) -> Iterator[tuple[Instruction, Computation]]:
        """What an instruction does, each with its computation: itself, or all that it fuses."""
        if instruction.opcode not in FUSIONS:
            yield instruction, computation
            return
        called = self.called(instruction)
        for inner in called.instructions:
            yield from self.fused(inner, called)

    def space(self, shape: Shape) -> int:
        """The memory that an array lies in; a GPU's space 1 is its memory, open to collectives."""
        return DEVICE if shape.space == VMEM and not self.tpu else shape.space


def parse(text: str) -> Module:
    """Reads a program, as `compiled.as_text()` gives it. `HloError` if it has no entry."""
    computations: dict[str, Computation] = {}
    entry, current, pending = None, None, []
    for line in text.split("\n"):
        if current is None:
            header = _HEADER.match(line)
            if header:
                current = computations[header[2]] = Computation(header[2])
                entry = current if header[1] else entry
            continue
        if _starts(line):
            _add(current, pending)
            pending = [line]
        elif _ends(line) and _balanced(pending):
            _add(current, pending)
            current, pending = None, []
        elif line:  # strings may hold raw newlines
            pending.append(line)
    if entry is None:
        raise HloError(f"a program of {len(text)} characters has no ENTRY: give optimized HLO text")
    return Module(computations, entry, ":T(" in text)


_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_LINE = re.compile(r"^  (ROOT )?%([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\(", re.DOTALL)
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](?:\{([^}]*)\})?|[()]")
_NAME = re.compile(r"%([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_PARENTHESES = re.compile(r"[()]")


@functools.cache
def _attribute(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[ {{,]){re.escape(key)}=")


def _starts(line: str) -> bool:
    return line.startswith(("  %", "  ROOT %")) and " = " in line


def _ends(line: str) -> bool:
    return line == "}" or line.startswith("}, ")


def _balanced(lines: list[str]) -> bool:
    """Whether the braces of an instruction close: if not, a `}` on its own line is still in it."""
    if len(lines) < 2:
        return True
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", "\n".join(lines), flags=re.DOTALL)
    return text.count('"') == 0 and text.count("{") <= text.count("}")


def _add(computation: Computation, lines: list[str]) -> None:
    if not lines:
        return
    text = lines[0] if len(lines) == 1 else "\n".join(lines)
    found = _LINE.match(text)
    if not found:
        raise HloError(f"not an instruction of a form that is known: {text[:200]!r}")
    root, name, type_text, opcode = found.groups()
    end = _closing(text, found.end())
    inside, after = text[found.end() : end], text[end + 1 :]
    computation.instructions.append(
        Instruction(name, opcode, type_text, inside, after, root is not None)
    )


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` closes."""
    depth = 1
    for found in _PARENTHESES.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    raise HloError(f"an instruction without its closing parenthesis: {text[:200]!r}")


@functools.lru_cache(maxsize=16384)
def _type(text: str) -> Type:
    stack: list[list[Type]] = [[]]
    for found in _ARRAY.finditer(text):
        if found[0] == "(":
            stack.append([])
        elif found[0] == ")":
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            if found[1] not in BITS:
                raise HloError(f"type {found[1]!r} in {text[:80]!r} is not in jaxlm.plan.hlo.BITS")
            dims = ints(re.sub("[<=?]", "", found[2]))
            stack[-1].append(Shape(found[1], dims, found[3] or ""))
    if len(stack) != 1 or len(stack[0]) != 1:
        raise HloError(f"not a type: {text[:200]!r}")
    return stack[0][0]


@functools.lru_cache(maxsize=16384)
def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(leaves(_type(text)))


def ints(text: str) -> tuple[int, ...]:
    """Numbers between commas."""
    return tuple(int(n) for n in text.split(",")) if text else ()
