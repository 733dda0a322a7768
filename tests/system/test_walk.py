"""What both compilers make of one step, walked: the same work, and as much as arithmetic says."""

from dataclasses import replace

import pytest

from jaxlm.config import MeshConfig
from jaxlm.plan import alive, program, target, walk
from tests.plan.make_texts import CONFIG

pytestmark = [
    pytest.mark.compilers,
    # JAX means to drop the way in which the GPU's kernel is compiled.
    pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning"),
]

LAYERS, T, D, F, V, H, N, K = 2, 512, 512, 1536, 4096, 4, 2, 128
MICROBATCHES, FSDP, TENSOR = 2, 2, 2
STEP = replace(
    CONFIG,
    model=replace(
        CONFIG.model,
        vocab_size=V,
        d_model=D,
        n_layers=LAYERS,
        n_heads=H,
        n_kv_heads=N,
        d_ff=F,
        attention="auto",
        remat="attention",
    ),
    data=replace(CONFIG.data, seq_len=T),
    loss=replace(CONFIG.loss, vocab_blocks=1),
    train=replace(CONFIG.train, batch_size=MICROBATCHES * FSDP, end=f"{MICROBATCHES * FSDP} rows"),
    mesh=MeshConfig(data=1, fsdp=FSDP, tensor=TENSOR),
)


@pytest.fixture(scope="module")
def steps() -> dict[str, tuple[program.Program, walk.Counts]]:
    """By platform: the compiled step, and its counts."""
    found = {}
    for platform, name in {"tpu": "v5e:2x2", "gpu": "h100:1x4"}.items():
        compiled = program.compile(STEP, target.parse(name))
        found[platform] = compiled, walk.count(compiled.text, compiled.mesh_shape)
    return found


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_products_are_those_of_arithmetic(steps, platform):
    """The policy makes all of a layer again but its attention, and the last product for nothing."""
    _, counts = steps[platform]
    projections = D * K * (2 * H + 2 * N) + 3 * D * F
    layer = 4 * projections - D * F
    expected = 2 * T * MICROBATCHES * (LAYERS * layer + 3 * D * V) // TENSOR
    assert sum(p.flops * n for p, n in counts.products) == expected


@pytest.mark.parametrize(("platform", "block"), [("tpu", 512), ("gpu", 128)])
def test_attention_runs_once_each_way_and_counts_by_formula(steps, platform, block):
    """2 products forward; the two kernels of the gradient make the scores again: 3 + 4."""
    _, counts = steps[platform]
    executions = sorted((k.name, k.count) for k in counts.kernels)
    assert [n for _, n in executions] == [MICROBATCHES * LAYERS] * 3
    blocks = T // block
    pairs = blocks * (blocks + 1) // 2 * block * block
    per_product = 2 * (H // TENSOR) * K * pairs
    kernels = sum(k.flops * k.count for k in counts.kernels)
    assert kernels == (2 + 3 + 4) * per_product * MICROBATCHES * LAYERS
    assert counts.flops == kernels + sum(p.flops * n for p, n in counts.products)


def test_both_gather_the_same_parameters(steps):
    projections = D * K * (2 * H + 2 * N) + 3 * D * F
    twice = 2 * 2 * (LAYERS * projections) // TENSOR  # bfloat16, forward and backward
    sent = MICROBATCHES * (twice + 2 * D * V // TENSOR) // FSDP
    for _, counts in steps.values():
        ids = [c for c in counts.collectives if c.dtype != "bf16" and c.kind == "all-gather"]
        expected = sent + sum(c.wire_bytes * c.count for c in ids)
        assert counts.wire()["all-gather", ("fsdp",)] == expected
        assert sorted({n for _, n in counts.loops}) == [MICROBATCHES]  # as many as layers


def test_the_worst_moment_is_near_the_compilers_peak(steps):
    compiled, _ = steps["gpu"]
    assert alive.peak(compiled.text).bytes == pytest.approx(compiled.memory.peak, rel=0.2)
