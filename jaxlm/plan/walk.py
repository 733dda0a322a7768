"""What a compiled program does on one device in one step, with its loops multiplied out.

`cost_analysis()` of the compilers counts a loop's body once, and knows nothing of kernels in custom
calls; this walks over the program's text.
"""

import math
from dataclasses import dataclass, field, fields, replace

from jaxlm.plan import hlo, kernels, loops, products
from jaxlm.plan.accesses import Accesses
from jaxlm.plan.collectives import Collective, Reader
from jaxlm.plan.hlo import Computation, Instruction, Module
from jaxlm.plan.kernels import Kernel
from jaxlm.plan.loops import Frame
from jaxlm.plan.products import Product


@dataclass
class Counts:
    """Of one device and one step."""

    kernels: list[Kernel] = field(default_factory=list)
    hbm_bytes: float = 0.0
    """To and from the device's memory, as `jaxlm.plan.accesses` counts them."""
    host_bytes: float = 0.0
    """To and from the host's memory."""
    collectives: list[Collective] = field(default_factory=list)
    products: list[tuple[Product, int]] = field(default_factory=list)
    """Matrix products, and how often each is executed."""
    loops: list[tuple[str, int]] = field(default_factory=list)
    """Name and passes of each loop, once for each place that runs it."""

    @property
    def flops(self) -> float:
        """Of matrix products and kernels, two a multiply-add; elementwise work is not counted."""
        of_kernels = math.fsum(k.flops * k.count for k in self.kernels)
        return sum(p.flops * times for p, times in self.products) + of_kernels

    def wire(self) -> dict[tuple[str, tuple[str, ...]], int]:
        """Bytes that a device sends in a step, by kind of collective and axes."""
        totals: dict[tuple[str, tuple[str, ...]], int] = {}
        for c in self.collectives:
            key = (c.kind, c.axes)
            totals[key] = totals.get(key, 0) + c.bytes
        return totals

    def add(self, other: "Counts") -> None:
        """Adds all that another one has."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def count(text: str, mesh_shape: dict[str, int]) -> Counts:
    """Counts a program, as `compiled.as_text()` gives it, of a mesh with these axes in this order.

    `HloError` if it cannot be read, or a loop does not say how often it runs.
    """
    module = hlo.parse(text)
    return _Walker(module, mesh_shape).visit(Frame(module.entry), ())


class _Walker:
    def __init__(self, module: Module, mesh_shape: dict[str, int]):
        self._module = module
        self._accesses = Accesses(module)
        self._collectives = Reader(module, mesh_shape)

    def visit(self, frame: Frame, passes: tuple[int, ...]) -> Counts:
        """Of a computation inside loops of these passes, outermost first."""
        counts = Counts()
        for at in frame.computation.instructions:
            match at.opcode:
                case "while":
                    n = loops.trips(self._module, at, frame)
                    counts.loops.append((at.name, n))
                    inner = Frame(self._module.called(at, "body"), at, frame)
                    counts.add(self.visit(inner, (*passes, n)))
                case "conditional":
                    branches = [self._module.computations[name] for name in at.branches]
                    counted = [self.visit(Frame(branch), passes) for branch in branches]
                    counts.add(max(counted, key=lambda c: (c.flops, c.hbm_bytes)))
                case "call":
                    called = self._module.called(at, "to_apply")
                    counts.add(self.visit(Frame(called), passes))
                case "call-start" | "async-start":
                    counts.add(self._aside(at, passes))
                case _:
                    self._add(at, frame.computation, counts, passes)
        return counts

    def _aside(self, at: Instruction, passes: tuple[int, ...]) -> Counts:
        """Of a computation that runs beside others, on a TPU's SparseCore for one."""
        called = self._module.called(at, "to_apply" if at.opcode == "call-start" else "calls")
        counts = self.visit(Frame(called), passes)
        counts.collectives = [replace(c, asynchronous=True) for c in counts.collectives]
        return counts

    def _add(
        self, at: Instruction, computation: Computation, counts: Counts, passes: tuple[int, ...]
    ) -> None:
        times = math.prod(passes)
        moved = self._accesses.of(at, computation)
        counts.host_bytes += times * moved.host
        counts.collectives += [
            replace(c, count=times, loops=passes) for c in self._collectives.of(at, computation)
        ]
        parts = list(self._module.fused(at, computation))
        counts.products += [(p, times) for part in parts if (p := products.of(*part))]
        called = [replace(k, count=times) for part in parts if (k := kernels.of(*part))]
        counts.kernels += called
        hbm = sum(k.bytes for k in called) if called else moved.hbm
        counts.hbm_bytes += times * hbm
