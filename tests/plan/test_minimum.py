"""The least of a step, against numbers worked out by hand."""

import dataclasses

import pytest

from jaxlm import models
from jaxlm.config import Config, DataConfig, LossConfig, ModelConfig, OptimConfig, TrainConfig
from jaxlm.models.remat import REMAT
from jaxlm.ops.attention import ATTENTION
from jaxlm.plan import minimum
from jaxlm.plan.minimum import expected

ONE = {"data": 1, "fsdp": 1, "tensor": 1}

MODEL = ModelConfig(
    vocab_size=128, d_model=8, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=2, d_ff=16
)
LAYER = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16  # query, key and value, out, MLP: 576
HEAD = 8 * 128


def config(model: ModelConfig = MODEL, rows: int | None = None, blocks: int = 1) -> Config:
    return Config(
        model=model,
        data=DataConfig(source="synthetic", seq_len=256),
        loss=LossConfig(vocab_blocks=blocks),
        train=TrainConfig(batch_size=16, rows_per_device=rows),
    )


def flops(found: minimum.Expected, name: str, when: str) -> float:
    return sum(t.flops for t in found.products if t.name == name and t.when == when)


def again(found: minimum.Expected) -> float:
    """What the remat policy and blocked loss add."""
    return sum(t.flops for t in found.products if t.when == "recomputed")


def test_products_of_one_device():
    """16 rows of 256 tokens; the reference computes all 256 x 256 scores of 4 heads of 2."""
    tokens = 16 * 256
    scores = 2 * 3 * 16 * 256 * 256 * 4 * 2
    found = expected(config(), ONE, "reference")
    assert flops(found, "attention", "forward") == 2 * scores
    assert flops(found, "attention", "backward") == 4 * scores
    assert found.flops == 6 * tokens * (3 * LAYER + HEAD) + 6 * scores
    assert again(found) == 0
    assert found.model_flops == 6 * tokens * (3 * LAYER + HEAD) + 3 * scores
    assert found.model_flops_all_pairs == found.flops
    assert found.moves == ()


@pytest.mark.parametrize(("tokens", "block"), [(256, 256), (768, 256), (1024, 512)])
def test_a_kernel_takes_blocks_that_divide_a_row(tokens, block):
    """Splash attention has none of 512 for rows of 768."""
    cfg = dataclasses.replace(config(), data=DataConfig(source="synthetic", seq_len=tokens))
    blocks = tokens // block
    computed = blocks * (blocks + 1) // 2 * block**2
    found = expected(cfg, ONE, "splash")
    assert flops(found, "attention", "forward") == 2 * (2 * 3 * 16 * computed * 4 * 2)


def test_a_kernel_leaves_out_blocks_above_the_diagonal():
    """Blocks of 128: 3 of 4."""
    scores = 2 * 3 * 16 * (3 * 128 * 128) * 4 * 2
    found = expected(config(), ONE, "pallas")
    assert flops(found, "attention", "forward") == 2 * scores
    assert flops(found, "attention", "backward") == 7 * scores


@pytest.mark.parametrize(
    ("remat", "weights", "attention"),
    [("none", 0, 0), ("dots", 0, 0), ("attention", 448, 0), ("full", 448, 2)],
)
def test_what_remat_adds(remat, weights, attention):
    """All of the layer's 576 weights but the 128 of `down`; attention where nothing is saved."""
    found = expected(config(dataclasses.replace(MODEL, remat=remat)), ONE, "reference")
    scores = 2 * 3 * 16 * 256 * 256 * 4 * 2
    assert again(found) == 2 * 16 * 256 * 3 * weights + attention * scores


def test_blocked_loss_forms_the_logits_again():
    plain, blocked = expected(config(), ONE), expected(config(blocks=4), ONE)
    assert blocked.flops - plain.flops == again(blocked) == 2 * 16 * 256 * HEAD


def test_flops_are_shared_by_all_devices():
    one = expected(config(), ONE, "pallas")
    eight = expected(config(), {"data": 2, "fsdp": 2, "tensor": 2}, "pallas")
    assert (eight.flops, eight.model_flops) == (one.flops / 8, one.model_flops / 8)


def test_uneven_heads_of_keys_are_computed_by_each_device():
    """2 key-value heads, 4 ways: each device has the 64 weights of both, twice its share."""
    shared = minimum.layer_products(MODEL, 2)
    whole = minimum.layer_products(MODEL, 4)
    assert (shared["attention/key"], whole["attention/key"]) == (16, 32)
    found = expected(config(), {"data": 1, "fsdp": 2, "tensor": 4})
    sums = [m for m in found.moves if m.name == "gradients of kv"]
    assert [m.bytes for m in sums] == [2 * 3 / 4 * 3 * (2 * 32 / 2) * 2]


def test_fsdp_moves_weights_there_and_gradients_back():
    """4 ways, bfloat16, 2 microbatches of 2 rows: 3/4 of an array is another device's."""
    full = dataclasses.replace(MODEL, remat="full")
    found = expected(config(full, rows=2), {"data": 1, "fsdp": 4, "tensor": 1}).wire()
    layers, head, tokens = 3 * LAYER * 2, HEAD * 2, 2 * 256
    assert found == {
        ("all-gather", ("fsdp",)): 3 / 4 * 2 * (2 * layers + head + 4 * tokens * 2),
        ("reduce-scatter", ("fsdp",)): 3 / 4 * 2 * (layers + head),
        ("all-to-all", ("fsdp",)): 3 / 4 * 2 * 2 * tokens * 8 * 2,
        ("all-reduce", ("fsdp",)): 2 * 3 / 4 * 2 * 7 * 8 * 4,
    }


def test_weights_are_gathered_once_where_all_is_saved():
    shape = {"data": 1, "fsdp": 4, "tensor": 1}
    names = [m.name for m in expected(config(), shape).moves if m.kind == "all-gather"]
    assert names == ["layers, forward", "head", "ids"]


def test_replicas_sum_float32_once_whatever_the_microbatches():
    shape = {"data": 2, "fsdp": 4, "tensor": 1}
    shard = (3 * LAYER + 2 * HEAD) / 4 + 7 * 8
    for rows in (1, 2):
        found = expected(config(rows=rows), shape).wire()
        assert found["all-reduce", ("data",)] == 2 * 1 / 2 * 4 * shard


def test_tied_table_is_counted_once():
    tied = dataclasses.replace(MODEL, tied_embeddings=True)
    shape = {"data": 2, "fsdp": 1, "tensor": 1}
    found = [expected(config(m), shape).wire()["all-reduce", ("data",)] for m in (MODEL, tied)]
    assert found[0] - found[1] == 2 * 1 / 2 * 4 * HEAD


def test_tensor_axis_moves_activations():
    """2 ways, full remat: 6 gathers and 5 scatters a layer, one of each for the head."""
    full = dataclasses.replace(MODEL, remat="full")
    found = expected(config(full), {"data": 1, "fsdp": 1, "tensor": 2}).wire()
    activations = 16 * 256 * 8 * 2
    assert found == {
        ("all-gather", ("tensor",)): 1 / 2 * activations * (3 * 6 + 1),
        ("reduce-scatter", ("tensor",)): 1 / 2 * activations * (3 * 5 + 1),
        ("all-to-all", ("tensor",)): 1 / 2 * 2 * activations / 2,
        ("all-reduce", ("tensor",)): 2 * 1 / 2 * (3 * 16 * 256 * 4 + 7 * 8 * 4),
    }


def test_muon_multiplies_whole_layers():
    """3 layers on 2 devices: 2 of them on one. 5 steps of 2 m m n + 2 m m m + 2 m m n each."""
    muon = dataclasses.replace(config(), optim=OptimConfig(name="muon"))
    found = expected(muon, {"data": 1, "fsdp": 2, "tensor": 1})
    square = 5 * (2 + 2 + 2) * 8**3  # query, out
    narrow = 5 * (2 * 2 * 4 * 4 * 8 + 2 * 4**3)  # key, value
    wide = 5 * (2 * 2 * 8 * 8 * 16 + 2 * 8**3)  # gate, up, down
    assert flops(found, "newton-schulz", "update") == 2 * (2 * square + 2 * narrow + 3 * wide)
    moved = [m.bytes for m in found.moves if m.name == "whole layers"]
    assert moved == [2 * 1 / 2 * 3 * LAYER / 2 * 2]


def test_every_kernel_and_policy_is_known():
    assert set(minimum.ATTENTION) == set(ATTENTION)
    for remat in REMAT:
        assert expected(config(dataclasses.replace(MODEL, remat=remat)), ONE).flops > 0


def test_weights_are_those_of_the_model():
    """By place in the model's own parameters."""
    blocks = models.build(MODEL, "reference").abstract()["blocks"]
    for place, weights in minimum.layer_products(MODEL).items():
        module, name = place.split("/")
        assert 3 * weights == blocks[module][name]["kernel"].size
    assert minimum.norm_params(MODEL) == 7 * 8
