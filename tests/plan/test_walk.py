"""Whole programs of both compilers, against arithmetic."""

import pytest

from jaxlm.plan import walk
from jaxlm.plan.hlo import HloError
from tests.plan import make_texts
from tests.plan.programs import computation, program

CONFIG = make_texts.CONFIG
MESH = {"data": 2, "fsdp": 2, "tensor": 2}
MICROBATCHES, LAYERS, T, D, V = 2, 3, 256, 256, 2048
QKV, OUT, MLP = D * 64 * (4 + 2 + 2), 4 * 64 * D, 3 * D * 640
BLOCK = QKV + OUT + MLP
HEAD = D * V
BF16, F32 = 2, 4
EXACT = ("all-gather", "all-to-all", "reduce-scatter")


@pytest.fixture(scope="module", params=["tpu", "gpu"])
def compiled(request) -> tuple[str, walk.Counts]:
    """A compiler, and the counts of its program."""
    return request.param, walk.count(make_texts.read(request.param), MESH)


def test_the_arithmetic_here_is_of_the_config_that_was_compiled():
    model = CONFIG.model
    assert (model.n_layers, CONFIG.data.seq_len, model.d_model) == (LAYERS, T, D)
    assert (model.padded_vocab, model.d_ff, model.head_size) == (V, 640, 64)
    assert (model.n_heads, model.n_kv_heads, CONFIG.loss.vocab_blocks) == (4, 2, 2)
    assert CONFIG.train.batch_size == 2 * 2 * MICROBATCHES * CONFIG.train.rows_per_device


def test_flops_are_those_of_every_product(compiled):
    """Per device: half of each product, by tensor; scores of the reference are not halved."""
    _, counts = compiled
    scores = 2 * 2 * T * T * (4 * 64) // 2
    forward = 2 * T * BLOCK // 2 + scores
    last = 2 * T * (640 * D) // 2  # not made again: nothing in the layer's backward pass needs it
    layer = 4 * forward - last  # forward, once more, and twice for the two gradients
    head = 4 * 2 * T * HEAD // 2  # its blocks are made again too
    assert counts.flops == MICROBATCHES * (LAYERS * layer + head)
    assert counts.kernels == []
    assert {p.dtype for p, _ in counts.products} == {"bf16", "f32"}
    assert sum(p.flops * n for p, n in counts.products) == counts.flops


def test_loops_are_microbatches_layers_and_blocks_of_the_vocabulary(compiled):
    _, counts = compiled
    assert sorted(n for _, n in counts.loops) == [MICROBATCHES, 2, 2, LAYERS, LAYERS]
    nested = {c.loops for c in counts.collectives}
    assert nested == {(), (MICROBATCHES,), (MICROBATCHES, LAYERS), (MICROBATCHES, 2)}
    assert all(c.count == 1 for c in counts.collectives if c.loops == ())
    assert all(c.count == 6 for c in counts.collectives if c.loops == (MICROBATCHES, LAYERS))


def test_parameters_are_gathered_twice_and_gradients_scattered_once_a_microbatch(compiled):
    name, counts = compiled
    wire = counts.wire()
    shard = BLOCK // 2 * BF16 // 2  # of tensor; what one of two devices sends
    head = HEAD // 2 * BF16 // 2
    ids = 2 * T * (2 if name == "gpu" else 4) // 2  # TPU has no 16-bit integers
    gathered = MICROBATCHES * (2 * (LAYERS * shard + head) + ids)
    assert wire["all-gather", ("fsdp",)] == gathered
    reduced = MICROBATCHES * (LAYERS * shard + head)
    if name == "gpu":
        assert wire["reduce-scatter", ("fsdp",)] == reduced
        assert wire["all-reduce", ("fsdp",)] < 100  # sums of the loss
    else:  # TPU's choice, of twice the bytes, in small groups and on small slices
        assert ("reduce-scatter", ("fsdp",)) not in wire
        assert 0 <= wire["all-reduce", ("fsdp",)] - 2 * reduced < 100


def test_activations_are_gathered_and_scattered_along_the_sequence(compiled):
    _, counts = compiled
    wire = counts.wire()
    rows = T * D * BF16 // 2
    layers = MICROBATCHES * LAYERS
    assert wire["all-gather", ("tensor",)] == rows * (layers * 6 + MICROBATCHES)
    assert wire["reduce-scatter", ("tensor",)] == rows * (layers * 5 + MICROBATCHES)
    table = rows // 2  # a shard of the width
    assert wire["all-to-all", ("fsdp",)] == table * MICROBATCHES * 2
    assert wire["all-to-all", ("tensor",)] == table * MICROBATCHES * 2


def test_gradients_cross_data_once_in_float32(compiled):
    _, counts = compiled
    crossing = [c for c in counts.collectives if c.axes == ("data",)]
    assert {(c.kind, c.dtype, c.count) for c in crossing} == {("all-reduce", "f32", 1)}
    norms, scalars = (2 * LAYERS + 1) * D, 3
    expected = (LAYERS * BLOCK + 2 * HEAD) // 4 + norms + scalars
    assert sum(c.wire_bytes for c in crossing) == expected * F32


def test_a_compiler_says_what_runs_beside_other_work(compiled):
    """TPU carries gathers along in fusions, each counted once; GPU starts them."""
    name, counts = compiled
    gathers = [c for c in counts.collectives if c.kind == "all-gather" and c.axes == ("fsdp",)]
    beside = [c for c in gathers if c.asynchronous]
    assert beside
    assert {c.fused for c in beside} == {name == "tpu"}
    assert all(c.op_name and c.name and not c.between_slices for c in gathers)
    assert all(c.payload_bytes == 2 * c.wire_bytes for c in gathers)  # groups of two


def test_memory_traffic_is_at_least_parameters_and_optimizer_once(compiled):
    name, counts = compiled
    stored = (LAYERS * BLOCK + 2 * HEAD) // 4 * F32
    least = 6 * stored  # parameters and two moments, read and written
    assert least < counts.hbm_bytes < (4 if name == "tpu" else 60) * least
    assert counts.host_bytes == 0


def test_branches_count_by_the_larger_and_calls_by_what_they_call():
    def dot(size: int) -> str:
        return f"""%a = bf16[{size},{size}]{{1,0}} parameter(0)
        %d = bf16[{size},{size}]{{1,0}} dot(%a, %a), lhs_contracting_dims={{1}}"""

    text = program(
        """%p = s32[] parameter(0)
        %a = bf16[8,8]{1,0} parameter(1)
        %one = bf16[8,8]{1,0} call(%a), to_apply=%small
        %c = bf16[8,8]{1,0} conditional(%p, %a, %a), branch_computations={%small, %large}""",
        computation("small", dot(8)),
        computation("large", dot(16)),
    )
    assert walk.count(text, MESH).flops == 2 * 8**3 + 2 * 16**3


def test_a_missing_computation_is_an_error():
    with pytest.raises(HloError, match="calls nowhere, and it is missing"):
        walk.count(program("%c = f32[] call(), to_apply=%nowhere"), MESH)
