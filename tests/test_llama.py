"""The configs from 1B to 70B: their sizes, what follows from them, and every target."""

import math
from pathlib import Path

import jax
import pytest

from jaxlm import config, llama, models, schema

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("lm_*.py"))
SIZES = {"lm_1b": 1.26e9, "lm_7b": 7.52e9, "lm_13b": 13.25e9, "lm_70b": 70.55e9}
DEVICES = {"lm_1b": 8, "lm_7b": 32, "lm_13b": 64, "lm_70b": 256}
CHIPS = {"v5e", "v5p", "v6e", "7x", "a100", "h100", "h200", "b200"}
ROWS = [(path, target) for path in CONFIGS for target in schema.targets(path)]


@pytest.fixture(params=CONFIGS, ids=lambda path: path.stem)
def path(request) -> Path:
    return request.param


def test_a_config_is_of_the_size_in_its_name(path):
    cfg = config.load(path)
    shapes = jax.tree.leaves(models.build(cfg.model).abstract())
    counted = sum(math.prod(leaf.shape) for leaf in shapes)
    assert counted == pytest.approx(SIZES[path.stem], rel=1e-3)
    ours = schema.schema(config.Config)
    for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff"):
        ours.model[name] = getattr(cfg.model, name)
    norms = (2 * cfg.model.n_layers + 1) * cfg.model.d_model
    assert counted == llama.parameters(ours) + norms


def test_length_warm_up_and_learning_rate_follow_the_rules(path):
    cfg = config.load(path)
    tokens, size = cfg.end * cfg.data.seq_len, SIZES[path.stem]
    assert 20 * size < tokens * 1.001 < 20.1 * size
    warmup = cfg.rows("optim.warmup") // cfg.train.batch_size
    assert warmup == {"lm_1b": 2000, "lm_7b": 2400, "lm_13b": 3000, "lm_70b": 6000}[path.stem]
    assert cfg.peak_lr == pytest.approx(cfg.optim.lr * math.sqrt(cfg.batch_tokens / 2**22))
    late = int(0.8 * cfg.end)
    assert cfg.dropout_phases() == ((0, 0.1), (late, 0.0))
    assert cfg.end - cfg.rows("optim.decay") == pytest.approx(late, abs=1)


def test_every_chip_has_a_target_and_one_row_is_of_the_usual_size(path):
    targets = schema.targets(path)
    assert {target.partition(":")[0] for target in targets} == CHIPS
    assert sum(devices(target) == DEVICES[path.stem] for target in targets) >= 4


@pytest.mark.parametrize(("path", "target"), ROWS, ids=lambda x: getattr(x, "stem", x))
def test_a_layout_uses_all_devices_of_its_target_and_cuts_the_batch_evenly(path, target):
    cfg = config.load(f"{path}:{target}")
    mesh = cfg.mesh
    assert mesh.data * mesh.fsdp * mesh.tensor == devices(target)
    shards = mesh.data * mesh.fsdp * cfg.train.rows_per_device
    assert cfg.train.batch_size % shards == 0
    same = {"mesh", "train", "model", "loss"}
    default = config.load(path)
    for name in set(vars(default)) - same:
        assert getattr(cfg, name) == getattr(default, name)
    assert cfg.end == default.end


def test_the_default_is_the_first_target(path):
    assert config.load(path) == config.load(f"{path}:{schema.targets(path)[0]}")


def devices(target: str) -> int:
    """What JAX calls devices: two on a v7x chip."""
    chip, _, shape = target.partition(":")
    return math.prod(int(n) for n in shape.split("x")) * (2 if chip == "7x" else 1)
