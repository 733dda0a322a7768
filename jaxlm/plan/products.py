"""FLOPs of the matrix products of a compiled program: two a multiply-add.

A GPU's are `dot`s, or custom calls of cuBLAS; a TPU's are `convolution`s, whose windows reach into
padding: only taps that meet data count.
"""

import json
import math
import re
from dataclasses import dataclass

from jaxlm.plan.hlo import BITS, Computation, HloError, Instruction, Shape

LIBRARY = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8")
"""Custom calls that are products; the operands come first."""


@dataclass(frozen=True)
class Product:
    """A matrix product."""

    op_name: str
    dtype: str
    """Of the wider of its two operands."""
    flops: int
    """Of one execution."""


def of(instruction: Instruction, computation: Computation) -> Product | None:
    """The product that an instruction is; None if it is none. `HloError` for an unknown form."""
    count = FORMS.get(instruction.opcode)
    other = count is library and instruction.word("custom_call_target") not in LIBRARY
    if count is None or other:
        return None
    left, right = (computation.by_name[name].shapes[0] for name in instruction.operands[:2])
    widest = max(left, right, key=lambda shape: BITS[shape.dtype])
    return Product(instruction.op_name, widest.dtype, count(instruction, left, right))


def dot(instruction: Instruction, left: Shape, right: Shape) -> int:
    """FLOPs of a `dot`: 2 x the result's elements x the sizes that are summed over."""
    summed = math.prod(left.dims[d] for d in instruction.ints("lhs_contracting_dims"))
    return 2 * instruction.shapes[0].elements * summed


def library(instruction: Instruction, left: Shape, right: Shape) -> int:
    """FLOPs of a product in cuBLAS, whose dimensions stand in its config."""
    found = re.search(r'"dot_dimension_numbers":(\{[^}]*\})', instruction.after)
    if found is None:
        raise HloError(f"matrix product {instruction.name} has no dot_dimension_numbers")
    dims = json.loads(found[1])["lhs_contracting_dimensions"]
    return 2 * instruction.shapes[0].elements * math.prod(left.dims[int(d)] for d in dims)


def convolution(instruction: Instruction, data: Shape, kernel: Shape) -> int:
    """FLOPs of a `convolution`, at the places where the window meets data."""
    labels = re.match(r"(\w+)_(\w+)->(\w+)", instruction.attribute("dim_labels") or "")
    if labels is None:
        raise HloError(f"convolution {instruction.name} has no dim_labels of a known form")
    of_data, of_kernel, of_out = labels.groups()
    out = instruction.shapes[0]
    window = _window(instruction)
    taps = 1
    for axis in (c for c in of_out if c.isdigit()):
        taps *= _taps(
            out.dims[of_out.index(axis)],
            data.dims[of_data.index(axis)],
            kernel.dims[of_kernel.index(axis)],
            *window[int(axis)],
        )
    outer = out.dims[of_out.index("b")] * out.dims[of_out.index("f")]
    return 2 * outer * kernel.dims[of_kernel.index("i")] * taps


FORMS = {"dot": dot, "convolution": convolution, "custom-call": library}
"""By opcode: what counts the FLOPs."""


def _window(instruction: Instruction) -> list[tuple[int, int, int, int]]:
    """Of each spatial dimension: stride, padding before, dilation of the data and of the kernel."""
    text = instruction.attribute("window")
    if text is None:
        return []
    parts = dict(part.split("=") for part in text[1 : text.index("}")].split())
    rank = len(parts["size"].split("x"))

    def read(key: str, default: str) -> list[str]:
        return parts[key].split("x") if key in parts else [default] * rank

    pads = [pad.split("_")[0] for pad in read("pad", "0_0")]
    rows = zip(
        read("stride", "1"), pads, read("lhs_dilate", "1"), read("rhs_dilate", "1"), strict=True
    )
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in rows]


def _taps(
    out: int, data: int, kernel: int, stride: int, pad: int, data_step: int, kernel_step: int
) -> int:
    """Pairs (place in the result, place in the kernel) that meet an element of the data."""
    last = (data - 1) * data_step
    common = math.gcd(stride, data_step)
    period = data_step // common
    pairs = 0
    for k in range(kernel):
        shift = k * kernel_step - pad  # the data's place for result o is o * stride + shift
        if shift % common:
            continue
        low = max(0, -(shift // stride))
        high = min(out - 1, (last - shift) // stride)
        first = -(shift // common) * pow(stride // common, -1, period) % period if period > 1 else 0
        low += (first - low) % period
        pairs += max(0, (high - low) // period + 1)
    return pairs
