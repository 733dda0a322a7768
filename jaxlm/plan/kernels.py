"""What the kernels in custom calls compute and move, by the formulas that they register."""

from dataclasses import dataclass

from jaxlm.ops.attention import ATTENTION
from jaxlm.plan.hlo import BITS, Computation, HloError, Instruction, Shape

MUST_BE_KNOWN = ("tpu_custom_call", "__gpu$xla.gpu.triton", "__cudnn$", "mosaic_gpu")
"""Beginnings of the targets that compute: without a formula their work would be left out."""


@dataclass(frozen=True)
class Kernel:
    """A kernel in a custom call; figures of one execution."""

    name: str
    flops: float
    bytes: float
    """To and from the device's memory."""
    count: int = 1
    """Executions in a step."""


def of(instruction: Instruction, computation: Computation) -> Kernel | None:
    """The kernel that an instruction calls, if any. `HloError` for one without a formula."""
    target = instruction.word("custom_call_target") or ""
    if not target.startswith(MUST_BE_KNOWN):
        return None
    operands = [s for name in instruction.operands for s in computation.by_name[name].shapes]
    for kernel in ATTENTION.values():
        for call in kernel.calls:
            if call.target == target and call.name in instruction.after:
                inputs = [s.dims for s in operands]
                outputs = [s.dims for s in instruction.shapes]
                flops = call.flops(inputs, outputs)
                size = call.bytes(inputs, outputs, _element_bytes(operands))
                return Kernel(call.name or target, flops, size)
    raise HloError(
        f"custom call {instruction.name} to {target} ({instruction.op_name or 'no op_name'}): no "
        f"formula for its FLOPs; add one to `calls` of its kernel in jaxlm.ops.attention.ATTENTION"
    )


def _element_bytes(operands: list[Shape]) -> int:
    """Of the first operand of a floating type: the queries."""
    bits = next((BITS[s.dtype] for s in operands if "f" in s.dtype), 32)
    return bits // 8
