"""FLOPs of matrix products, in the form of each compiler."""

import random

import pytest

from jaxlm.plan import hlo, products
from jaxlm.plan.hlo import HloError
from tests.plan.programs import computation, program


def found(entry: str, *computations: str) -> list[products.Product]:
    """The products of a program's last instruction."""
    module = hlo.parse(program(entry, *computations))
    parts = module.fused(module.entry.root, module.entry)
    return [p for part in parts if (p := products.of(*part))]


def test_a_dot_sums_over_what_it_contracts():
    dot = """%a = bf16[4,16,32]{2,1,0} parameter(0)
    %b = f32[4,32,8]{2,1,0} parameter(1)
    %d = f32[4,16,8]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}, metadata={op_name="jit(f)/dot_general"}"""
    expected = products.Product("jit(f)/dot_general", "f32", 2 * 4 * 16 * 8 * 32)
    assert found(dot) == [expected]
    fused = computation("inner", dot)
    outer = computation("outer", "%x = f32[4,16,8]{2,1,0} fusion(), kind=kLoop, calls=%inner")
    fusion = "%y = f32[4,16,8]{2,1,0} fusion(), kind=kOutput, calls=%outer"
    assert found(fusion, fused, outer) == [expected]


def test_a_library_product_reads_its_config():
    call = """%a = bf16[32,16]{1,0} parameter(0)
    %b = bf16[32,8]{1,0} parameter(1)
    %c = (bf16[16,8]{1,0}, s8[1024]{0}) custom-call(%a, %b), custom_call_target="TARGET", \
backend_config={"gemm_backend_config":{"beta":0,"dot_dimension_numbers":{\
"lhs_contracting_dimensions":["0"],"rhs_contracting_dimensions":["0"]}}}"""
    for target in products.LIBRARY:
        (product,) = found(call.replace("TARGET", target))
        assert product.flops == 2 * 16 * 8 * 32
    assert found(call.replace("TARGET", "AllocateBuffer")) == []
    with pytest.raises(HloError, match="dot_dimension_numbers"):
        found(call.replace("TARGET", products.LIBRARY[0]).replace("dot_dim", "other_dim"))


@pytest.mark.parametrize(
    ("shapes", "attributes", "flops"),
    [
        # A plain product: [512, 256] x [256, 640].
        (("512,256", "256,640", "512,640"), "dim_labels=bf_io->bf", 2 * 512 * 256 * 640),
        # Heads as places of the result that meet the reversed kernel in one tap each.
        (
            ("512,256,1", "256,4,64", "512,4,64"),
            "window={size=4 pad=3_3 rhs_reversal=1}, dim_labels=bf0_i0o->b0f",
            2 * 512 * 256 * 4 * 64,
        ),
        # Heads that are summed over.
        (
            ("512,64,4", "256,64,4", "1,512,256"),
            "window={size=4}, dim_labels=bf0_oi0->0bf",
            2 * 512 * 256 * 4 * 64,
        ),
        # A batch of 4 products, as a dilated dimension that each tap meets once.
        (
            ("4,512,32", "4,128,32", "4,512,128"),
            "window={size=4 stride=3 pad=0_0 lhs_dilate=4}, dim_labels=0bf_0oi->0bf",
            2 * 4 * 512 * 128 * 32,
        ),
    ],
)
def test_a_convolution_counts_the_taps_that_meet_data(shapes, attributes, flops):
    data, kernel, out = shapes
    text = f"""%a = bf16[{data}] parameter(0)
    %b = bf16[{kernel}] parameter(1)
    %c = bf16[{out}] convolution(%a, %b), {attributes}"""
    assert [p.flops for p in found(text)] == [flops]


def test_taps_as_counted_one_by_one():
    random.seed(0)
    for _ in range(500):
        out, data, kernel, stride, data_step, kernel_step = (random.randint(1, 8) for _ in range(6))
        pad = random.randint(-4, 10)
        places = [o * stride + k * kernel_step - pad for o in range(out) for k in range(kernel)]
        met = sum(0 <= p <= (data - 1) * data_step and p % data_step == 0 for p in places)
        given = (out, data, kernel, stride, pad, data_step, kernel_step)
        assert products._taps(*given) == met, given
