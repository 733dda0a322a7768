"""What a compiled program does on one device in one step, with its loops multiplied out.

`cost_analysis()` of the compilers counts a loop's body once, and knows nothing of kernels in custom
calls; this walks over the program's text.
"""

import math
from dataclasses import dataclass, field, replace

from jaxlm.plan import hlo, loops, traffic
from jaxlm.plan.collectives import Collective, Reader
from jaxlm.plan.hlo import Computation, HloError, Instruction, Module
from jaxlm.plan.kernels import Kernels
from jaxlm.plan.loops import Frame
from jaxlm.plan.products import Product, Products


@dataclass(frozen=True)
class Kernel:
    """A kernel in a custom call."""

    name: str
    count: int
    """Executions in a step."""
    flops: float
    """Of one execution."""
    bytes: float
    """To and from the device's memory, of one execution."""


@dataclass(frozen=True)
class Counts:
    """Of one device and one step."""

    flops: float
    """Of matrix products and kernels, two a multiply-add; elementwise work is not counted."""
    kernels: tuple[Kernel, ...]
    hbm_bytes: float
    """To and from the device's memory, as `jaxlm.plan.traffic` counts them."""
    host_bytes: float
    """To and from the host's memory."""
    collectives: tuple[Collective, ...]
    products: tuple[tuple[Product, int], ...]
    """Matrix products, and how often each is executed."""
    loops: tuple[tuple[str, int], ...]
    """Name and passes of each loop, once for each place that runs it."""

    def wire(self) -> dict[tuple[str, tuple[str, ...]], int]:
        """Bytes that a device sends in a step, by kind of collective and axes."""
        totals: dict[tuple[str, tuple[str, ...]], int] = {}
        for c in self.collectives:
            key = (c.kind, c.axes)
            totals[key] = totals.get(key, 0) + c.count * c.wire_bytes
        return totals


def count(text: str, mesh_shape: dict[str, int]) -> Counts:
    """Counts a program, as `compiled.as_text()` gives it, of a mesh with these axes in this order.

    `HloError` if it cannot be read, or a loop does not say how often it runs.
    """
    module = hlo.parse(text)
    walker = _Walker(module, mesh_shape)
    tally = _Tally()
    walker.visit(Frame(module.entry), tally, 1, ())
    return tally.counts()


@dataclass
class _Tally:
    """Counts so far."""

    kernels: list[Kernel] = field(default_factory=list)
    hbm_bytes: float = 0.0
    host_bytes: float = 0.0
    collectives: list[Collective] = field(default_factory=list)
    products: list[tuple[Product, int]] = field(default_factory=list)
    loops: list[tuple[str, int]] = field(default_factory=list)

    @property
    def flops(self) -> float:
        products = sum(p.flops * times for p, times in self.products)
        return products + math.fsum(k.flops * k.count for k in self.kernels)

    def add(self, other: "_Tally") -> None:
        self.kernels += other.kernels
        self.hbm_bytes += other.hbm_bytes
        self.host_bytes += other.host_bytes
        self.collectives += other.collectives
        self.products += other.products
        self.loops += other.loops

    def counts(self) -> Counts:
        return Counts(
            self.flops,
            tuple(self.kernels),
            self.hbm_bytes,
            self.host_bytes,
            tuple(self.collectives),
            tuple(self.products),
            tuple(self.loops),
        )


class _Walker:
    def __init__(self, module: Module, mesh_shape: dict[str, int]):
        self._module = module
        self._products = Products(module)
        self._kernels = Kernels(module)
        self._traffic = traffic.Traffic(module)
        self._reader = Reader(module, mesh_shape)

    def visit(self, frame: Frame, tally: _Tally, times: int, passes: tuple[int, ...]) -> None:
        """Adds a computation that is executed `times` in a step, inside loops of these passes."""
        for instruction in frame.computation.instructions:
            match instruction.opcode:
                case "while":
                    n = loops.trips(self._module, instruction, frame)
                    tally.loops.append((instruction.name, n))
                    body = self._computation(instruction, "body")
                    inner = Frame(body, instruction, frame)
                    self.visit(inner, tally, times * n, (*passes, n))
                case "conditional":
                    tally.add(self._larger_branch(instruction, frame, times, passes))
                case "call":
                    called = self._computation(instruction, "to_apply")
                    self.visit(Frame(called), tally, times, passes)
                case "call-start" | "async-start":
                    tally.add(self._aside(instruction, times, passes))
                case _:
                    self._add(instruction, frame.computation, tally, times, passes)

    def _aside(self, instruction: Instruction, times: int, passes: tuple[int, ...]) -> _Tally:
        """Of a computation that runs beside others, on a TPU's SparseCore for one."""
        key = "to_apply" if instruction.opcode == "call-start" else "calls"
        tally = _Tally()
        self.visit(Frame(self._computation(instruction, key)), tally, times, passes)
        tally.collectives = [replace(c, asynchronous=True) for c in tally.collectives]
        return tally

    def _larger_branch(
        self, instruction: Instruction, frame: Frame, times: int, passes: tuple[int, ...]
    ) -> _Tally:
        names = instruction.called_list("branch_computations") or [
            instruction.called("true_computation") or "",
            instruction.called("false_computation") or "",
        ]
        branches = []
        for name in names:
            tally = _Tally()
            self.visit(Frame(self._module.computations[name]), tally, times, passes)
            branches.append(tally)
        return max(branches, key=lambda t: (t.flops, t.hbm_bytes))

    def _add(
        self,
        instruction: Instruction,
        computation: Computation,
        tally: _Tally,
        times: int,
        passes: tuple[int, ...],
    ) -> None:
        moved = self._traffic.of(instruction, computation)
        tally.host_bytes += times * moved.host
        tally.products += [(p, times) for p in self._products.of(instruction, computation)]
        tally.collectives += [
            replace(c, count=times, loops=passes) for c in self._reader.of(instruction, computation)
        ]
        works = self._kernels.of(instruction, computation)
        tally.kernels += [Kernel(w.name, times, w.flops, w.bytes) for w in works]
        hbm = sum(w.bytes for w in works) if works else moved.hbm
        tally.hbm_bytes += times * hbm

    def _computation(self, instruction: Instruction, key: str) -> Computation:
        name = instruction.called(key)
        if name not in self._module.computations:
            raise HloError(
                f"{instruction.opcode} {instruction.name} calls {name}, and it is missing"
            )
        return self._module.computations[name]
