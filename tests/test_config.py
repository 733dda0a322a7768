"""The run's configuration: what it refuses, how it counts, and that all of it is documented."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jaxlm import config as config_lib
from jaxlm import resume, schema
from jaxlm.config import Config, DataConfig, ModelConfig, OptimConfig, Stage, TrainConfig
from jaxlm.schema import ConfigError

CONFIGS = Path(__file__).parents[1] / "configs"
SYNTHETIC = Config(data=DataConfig(source="synthetic", seq_len=512))


def parse(*overrides: str) -> Config:
    """The defaults on synthetic rows of 512, with overrides."""
    return config_lib.load(None, ("data.source=synthetic", "data.seq_len=512", *overrides))


def classes(cls: type = Config) -> Iterator[type]:
    """Every class of the configuration."""
    yield cls
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(field.default_factory):
            yield from classes(field.default_factory)


@pytest.mark.parametrize("cls", [*classes(), Stage])
def test_every_field_is_documented_and_has_a_resume_rule(cls):
    docs = schema.docs(cls)
    for field in dataclasses.fields(cls):
        assert docs[field.name], f"{cls.__name__}.{field.name} has no docstring under it"
        section = dataclasses.is_dataclass(field.default_factory)
        assert section or field.metadata["resume"] in ("fixed", "recorded", "free")
    assert cls.__doc__ and len(list(classes())) == 14


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_shipped_configs_parse_and_survive_json(path, tmp_path):
    cfg = config_lib.load(path)
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(schema.to_dict(cfg)))
    assert config_lib.load(saved) == cfg


@pytest.mark.parametrize(
    ("duration", "rows"),
    [
        ("300 steps", 2400),
        ("0.5 steps", 4),
        ("1200 rows", 1200),
        ("1e3 rows", 1000),
        ("4096 tokens", 8),
        ("4607 tokens", 8),  # rounded down to whole rows
        ("4e9 tokens", 7_812_500),
        (f"{2**53 + 1} rows", 2**53 + 1),  # not through a float
        ("0 steps", 0),
        ("90 %", 720),
        ("33.3 %", 266),  # rounded down
        ("100 %", 800),
    ],
)
def test_a_duration_in_rows(duration, rows):
    assert SYNTHETIC.to_rows(duration, "config.x") == rows


@pytest.mark.parametrize(
    "duration", ["300", "300 epochs", "steps", "many steps", "-1 steps", "nan steps", "inf rows",
                 "1e30 tokens", ""]
)  # fmt: skip
def test_a_wrong_duration_shows_how_to_write_one(duration):
    with pytest.raises(ConfigError) as error:
        SYNTHETIC.to_rows(duration, "config.optim.warmup")
    assert str(error.value) == (
        f"config.optim.warmup={duration!r}: write a number and steps, tokens, rows or % (of the "
        'run), as "300 steps"'
    )


def test_a_part_of_a_row_is_refused():
    with pytest.raises(ConfigError, match=r"config.x='0.3 rows': not a whole number"):
        SYNTHETIC.to_rows("0.3 rows", "config.x")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.end=1001 rows"],
            "config.train.end='1001 rows' is 1001 rows, not a whole number of batches of 8; "
            'use "125 steps" or "126 steps"',
        ),
        (
            ["train.end=3 rows"],
            "config.train.end='3 rows' is 3 rows, not a whole number of batches of 8; "
            'use "1 steps" or "2 steps"',
        ),
        (["train.end=90 %"], "config.train.end='90 %': it is the length of the run itself; write"),
        (["optim.warmup=101 %"], "config.optim.warmup='101 %': the run is all of it; write it as"),
        (["data.max_epochs=0.5"], "config.data: max_epochs=0.5: must be at least 1"),
        (["data.mixture_tolerance=2"], "config.data: mixture_tolerance=2.0: must be from 0 to 1"),
        (["train.end=0 steps"], "config.train.end='0 steps' is 0 rows, not a whole number"),
        (["train.batch_size=0"], "config.train.batch_size=0: at least 1"),
        (["train.seed=4294967296"], "config.train: seed=4294967296: must be in [0, 2**32)"),
        (["model.head_dim=0"], "config.model: head_dim=0: must be even for rotary embeddings, at"),
        (
            ["optim.warmup=60 steps", "optim.decay=50 steps"],
            "config.optim.warmup='60 steps' and decay='50 steps' take 880 rows, more than the 800 "
            "of config.train.end",
        ),
        (
            ["optim.decay=50 steps"],
            "config.optim.decay='50 steps': schedule='cosine' takes none; set it to \"0 steps\"",
        ),
        (
            ["optim.schedule=wsd"],
            "config.optim.decay='0 steps': schedule='wsd' needs one; set it, as \"100 steps\"",
        ),
        (["optim.lr=1e999"], "config.optim.lr=inf: must be a finite number"),
        (["optim.weight_decay=-1"], "config.optim: weight_decay=-1.0: must be at least 0"),
        (["model.norm_eps=0"], "config.model: norm_eps=0.0, rope_theta=500000.0: must be above 0"),
        (["data.block_rows=2000000"], "config.data: block_rows=2000000: must be at most 1000000"),
        (["log.every=0 steps"], "config.log.every='0 steps': must be above 0"),
        (["checkpoint.every=often"], "config.checkpoint.every='often': write a number"),
        (["checkpoint.keep=0"], "config.checkpoint: keep=0, keep_every=None: at least 1"),
        (["checkpoint.every_minutes=0"], "config.checkpoint: every_minutes=0.0: must be above 0"),
        (["checkpoint.every_minutes=1e7"], "config.checkpoint: every_minutes=10000000.0: must be"),
        (
            ["checkpoint.at=('50 %', '101 steps')"],
            "config.checkpoint.at='101 steps' is after the end of the run, config.train.end='100 s",
        ),
        (
            ["guard.margin=50 %"],
            "config.guard.margin='50 %': with as much before and after it, one batch would take "
            "all 800 rows of the run with it; lower the margin",
        ),
        (["guard.window=1000000000"], "config.guard: window=1000000000: must be from 32, to have"),
        (["watch.grace_seconds=1e308"], "config.watch: grace_seconds=1e+308: must be above 0, and"),
        (["watch.patience=0"], "config.watch: patience=0.0: must be above 0, and at most 1000000"),
        (["evaluate.rows=-1"], "config.evaluate: rows=-1: must be at least 0"),
        (["loss.z_loss=-1e-4"], "config.loss: z_loss=-0.0001: must be at least 0"),
        (["loss.vocab_blocks=0"], "config.loss: vocab_blocks=0: must be at least 1"),
        (["log.peak_tflops=0"], "config.log: peak_tflops=0.0: must be above 0"),
        (["model.n_layers=0"], "config.model: n_layers=0: must be at least 1"),
        (["model.n_kv_heads=3"], "config.model: n_heads=8 is not a multiple of n_kv_heads=3"),
        (["model.d_model=500"], "config.model: d_model=500 is not a multiple of n_heads=8; set"),
        (["model.head_dim=63"], "config.model: head_dim=63: must be even for rotary embeddings"),
        (["model.dropout=(('0 rows', 1.0),)"], "config.model: dropout rate 1.0 from '0 rows'"),
        (
            ["model.dropout=(('9 rows', 0.1), ('1 steps', 0.0))"],
            "config.model.dropout=(('9 rows', 0.1), ('1 steps', 0.0)): starts must increase",
        ),
        (["model.dropout=(('soon', 0.1),)"], "config.model.dropout='soon': write a number"),
        (["data.seq_len=0"], "config.data: seq_len=0: must be at least 1"),
        (["data.source=files"], "config.data.source='files': must be one of 'shards', 'synthetic'"),
        (["data.source=shards"], "config.data.manifest is not set: give the path of the corpus's"),
        (["optim.lr=0"], "config.optim: lr=0.0, eps=1e-08, clip_norm=1.0: must be above 0"),
        (["optim.b2=1"], "config.optim: b1=0.9, b2=1.0: must be in [0, 1)"),
        (["optim.final_lr=1.5"], "config.optim: final_lr=1.5: a share of the peak"),
        (
            ["optim.lr_reference_batch_tokens=0"],
            "config.optim: lr_reference_batch_tokens=0.0: must be above 0, or None",
        ),
        (["mesh.fsdp=0"], "config.mesh: data=1, fsdp=0, tensor=1: each at least 1, and at most"),
        (["mesh.data=-1"], "config.mesh: data=-1, fsdp=-1, tensor=1: each at least 1, and at most"),
    ],
)
def test_what_cannot_be_run_is_refused(overrides, message):
    with pytest.raises(ConfigError) as error:
        parse(*overrides)
    assert str(error.value).startswith(message)


def test_derived_values():
    cfg = parse("train.end=8192 tokens", "model.vocab_size=129", "model.head_dim=32")
    assert (cfg.end, cfg.batch_tokens) == (16, 4096)
    assert (cfg.model.padded_vocab, cfg.model.head_size) == (256, 32)
    assert ModelConfig(vocab_size=256).padded_vocab == 256


def test_dropout_phases_are_in_rows():
    cfg = parse("model.dropout=(('0 rows', 0.1), ('10 steps', 0.0))")
    assert cfg.dropout_phases() == ((0, 0.1), (80, 0.0))


def test_a_resume_is_refused_what_is_fixed_by_name():
    saved = schema.to_dict(SYNTHETIC)
    new = replace(
        SYNTHETIC, train=TrainConfig(seed=1), model=ModelConfig(d_ff=1024), optim=OptimConfig(lr=1)
    )
    with pytest.raises(ConfigError) as error:
        resume.allowed_changes(saved, new)
    message = str(error.value)
    assert "config.train.seed: 0 -> 1" in message and "config.model.d_ff: 1408 -> 1024" in message
    assert "optim" not in message and "start a new run in another --workdir" in message


@pytest.mark.parametrize(("old", "new"), [(0.9, 0.0), (0.0, 0.9)])
def test_a_resume_neither_begins_nor_ends_adafactors_first_moment(old, new):
    """Its state would be of other arrays; AdamW's is the same whatever the decay."""
    saved = schema.to_dict(parse("optim.name=adafactor", f"optim.b1={old}"))
    with pytest.raises(ConfigError, match=rf"\n  config.optim.b1: {old} -> {new}\nGive the old"):
        resume.allowed_changes(saved, parse("optim.name=adafactor", f"optim.b1={new}"))
    saved["optim"]["b1"] = 0.8
    less = parse("optim.name=adafactor", "optim.b1=0.7")
    assert resume.allowed_changes(saved, less) == [["optim.b1", 0.8, 0.7]]
    adamw = schema.to_dict(parse(f"optim.b1={old}"))
    assert resume.allowed_changes(adamw, parse(f"optim.b1={new}")) == [["optim.b1", old, new]]


def test_a_resume_lists_what_is_recorded_and_passes_over_what_is_free():
    saved = json.loads(json.dumps(schema.to_dict(SYNTHETIC)))
    new = replace(
        SYNTHETIC,
        train=TrainConfig(batch_size=16, end="200 steps"),
        log=config_lib.LogConfig(every="1 steps"),
    )
    assert resume.allowed_changes(saved, new) == [
        ["train.batch_size", 8, 16],
        ["train.end", "100 steps", "200 steps"],
    ]
