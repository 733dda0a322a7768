"""Kernels in custom calls, by the formulas that they register."""

import pytest

from jaxlm.plan import walk
from jaxlm.plan.hlo import HloError
from tests.plan.programs import computation, program

MESH = {"data": 1, "fsdp": 1, "tensor": 1}
B, H, T, K = 2, 8, 4096, 128

Q, LSE = f"bf16[{B},{T},{H},{K}]{{3,2,1,0}}", f"f32[{B},{H},{T}]{{2,1,0}}"
PALLAS = f"""%q = {Q} parameter(0)
    %ids = s32[{B},{T}]{{1,0}} parameter(1)
    %c = ({Q}, {LSE}) custom-call(%q, %q, %q, %ids), custom_call_target="__gpu$xla.gpu.triton", \
metadata={{op_name="jit(f)/attention_forward/pallas_call"}}, backend_config={{grid_x = 4 : i32}}"""


def test_a_kernel_counts_by_its_formula():
    """Two products over the blocks of 128 at or below the diagonal."""
    counts = walk.count(program(PALLAS), MESH)
    (kernel,) = counts.kernels
    blocks = T // 128
    pairs = blocks * (blocks + 1) // 2 * 128 * 128
    assert kernel.flops == counts.flops == 2 * 2 * B * H * K * pairs
    moved = 4 * B * T * H * K * 2 + B * H * T * 4 + B * T * 4
    assert kernel.bytes == counts.hbm_bytes == moved
    assert (kernel.name, kernel.count) == ("attention_forward", 1)


def test_a_kernel_inside_a_fusion_counts_as_often_as_its_loop_runs():
    fused = computation("fused", PALLAS)
    body = computation(
        "body", f"%s = (s32[], {Q}) parameter(0)\n%f = ({Q}, {LSE}) fusion(), calls=%fused"
    )
    loop = f"""%s = (s32[], {Q}) parameter(0)
        %l = (s32[], {Q}) while(%s), condition=%body, body=%body, \
backend_config={{"known_trip_count":{{"n":"3"}}}}"""
    (kernel,) = walk.count(program(loop, fused, body), MESH).kernels
    assert kernel.count == 3


@pytest.mark.parametrize(
    ("target", "name", "operands"),
    [
        ("tpu_custom_call", "splash_mha_fwd_segmented_residuals", "[2,8,4096,128]"),
        ("tpu_custom_call", "splash_mha_fwd_segmented_residuals", "[8,4096,128]"),  # a single row
        ("tpu_custom_call", "splash_mha_dq_segmented_no_residuals", "[2,8,4096,128]"),
        ("tpu_custom_call", "splash_mha_dkv_segmented_no_residuals", "[2,8,4096,128]"),
        ("__cudnn$fmhaSoftmax", "", "[2,4096,8,128]"),
        ("__cudnn$fmhaSoftmaxBackward", "", "[2,4096,8,128]"),
    ],
)
def test_every_target_that_computes_has_a_formula(target, name, operands):
    text = f"""%q = bf16{operands} parameter(0)
        %ids = s32[2,4096,128] parameter(1)
        %c = bf16{operands} custom-call(%q, %q, %q, %ids), custom_call_target="{target}", \
metadata={{op_name="jit(f)/{name}/pallas_call"}}"""
    (kernel,) = walk.count(program(text), MESH).kernels
    rows = 2 if operands.startswith("[2") else 1
    half = 2 * 2 * rows * H * K * T * T / 2
    assert half < kernel.flops < 3.5 * half
    assert kernel.bytes > 4 * rows * H * T * K * 2


def test_a_kernel_without_a_formula_is_an_error():
    text = PALLAS.replace("attention_forward", "new_kernel")
    with pytest.raises(HloError, match=r"new_kernel.*no formula.*ATTENTION"):
        walk.count(program(text), MESH)


def test_other_custom_calls_compute_nothing():
    text = PALLAS.replace("__gpu$xla.gpu.triton", "Sharding")
    assert walk.count(program(text), MESH).kernels == []
