"""`jaxlm train --dry-run`: what a run would take of the devices that are there."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxlm import cli
from jaxlm.data.manifest import ManifestError
from jaxlm.errors import EnvironmentProblem
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


@pytest.mark.parametrize("workdir", ["run", "run/deeper/still"])
def test_a_file_is_no_work_directory(config, tmp_path, capsys, workdir):
    (tmp_path / "run").write_text("a file")
    assert dry_run(config, f"--workdir={workdir}") == EnvironmentProblem.exit_code == 78
    said = capsys.readouterr().err
    assert f"--workdir={workdir}: cannot be written ({tmp_path}/run is not a directory)" in said
    assert (tmp_path / "run").read_text() == "a file"


def test_a_directory_without_permission_is_told(config, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert dry_run(config) == 78
    assert "--workdir=run: cannot be written (no permission in " in capsys.readouterr().err


def test_a_checkpoint_of_another_run_is_refused(config, tmp_path, capsys):
    """As a run would, with the same words; one of this run is not, and nothing is written."""
    assert cli.main(["train", config, "--workdir=run", "--config.train.end=1 steps"]) == 0
    before = files(tmp_path / "run")
    assert dry_run(config) == 0
    for change, said in (
        ("--config.optim.name=muon", "config.optim.name: 'adamw' -> 'muon'"),
        ("--config.data.seq_len=32", "config.data.seq_len: 16 -> 32"),
    ):
        capsys.readouterr()
        assert cli.main(["train", config, "--workdir=run", change]) == 2
        refusal = capsys.readouterr().err
        assert said in refusal
        assert dry_run(config, change) == 2
        assert capsys.readouterr().err == refusal
    assert files(tmp_path / "run") == before


def test_rows_to_skip_that_cannot_be_read_are_refused(config, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/skips.json").write_text("[[3, 1]]")
    assert dry_run(config) == 2
    assert "skips.json: window [3, 1)" in capsys.readouterr().err


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


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
