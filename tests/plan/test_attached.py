"""`jaxlm train --dry-run`: what a run would take of the devices that are there."""

from types import SimpleNamespace

import pytest

from jaxlm import cli
from jaxlm.data.manifest import ManifestError
from jaxlm.plan import attached, memory, target
from jaxlm.plan.figures import DOES_NOT_FIT

CONFIG = """\
from jaxlm.config import schema

def get_config():
    c = schema()
    c.data.source = "synthetic"
    c.data.seq_len = 16
    c.model.vocab_size = 100
    c.model.d_model, c.model.d_ff = 32, 48
    c.model.n_layers, c.model.n_heads, c.model.n_kv_heads = 1, 4, 2
    return c
"""


@pytest.fixture
def config(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(CONFIG)
    return "--config=small.py"


def dry_run(config: str, *arguments: str) -> int:
    return cli.main(["train", config, "--workdir=run", "--dry-run", *arguments])


def test_it_tells_and_writes_nothing(config, tmp_path, capsys):
    before = set(tmp_path.rglob("*"))
    assert dry_run(config) == 0
    text = capsys.readouterr().out
    assert text.startswith("plan of small.py on 8 attached: cpu\n")
    assert "data 1 x fsdp 8 x tensor 1" in text
    assert "1.000 of the expected" in text
    assert f"of {memory.host_bytes() / 8 / 2**30:.2f}: fits" in text
    assert "no roofline, days or cost: 'cpu' is not in the table of chips" in text
    written = set(tmp_path.rglob("*")) - before
    assert not {path for path in written if "__pycache__" not in path.parts}


def test_what_does_not_fit_is_2(config, monkeypatch, capsys):
    monkeypatch.setattr(memory, "host_bytes", lambda: 8 * 2**10)
    assert dry_run(config) == DOES_NOT_FIT == 2
    text = capsys.readouterr().out
    assert "DOES NOT FIT" in text and "the largest at the worst moment" in text
    assert "too much  --config.model.remat=" in text


def test_what_a_run_would_refuse_is_refused(config, capsys):
    missing = ("--config.data.source=shards", "--config.data.manifest=no/manifest.json")
    assert dry_run(config, *missing) == ManifestError.exit_code == 2
    assert "no/manifest.json" in capsys.readouterr().err


def gpu(process: int, slice_index: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        device_kind="NVIDIA H200", process_index=process, slice_index=slice_index
    )


def test_gpus_are_a_target():
    """A process a node, or a process a GPU: on one node, or on nodes that are told apart."""
    assert str(attached.target_of([gpu(i) for i in range(8)])) == "h200:1x8"
    assert str(attached.target_of([gpu(i // 8) for i in range(16)])) == "h200:2x8"
    assert str(attached.target_of([gpu(i, i // 8) for i in range(16)])) == "h200:2x8"
    assert str(attached.target_of([gpu(0)])) == "h200:1x1"


@pytest.mark.parametrize(("name", "slices"), [("v5e:4x8", 1), ("7x:2x2x2", 1), ("v5p:2x2x2", 2)])
def test_tpus_are_a_target(name, slices):
    pytest.importorskip("libtpu")
    meant = target.parse(name, slices)
    assert attached.target_of(meant.devices()) == meant
