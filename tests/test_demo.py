"""The parts of the demo that need no training; the whole is in tests/system."""

from pathlib import Path

import pytest

from jaxlm import demo
from jaxlm.data import manifest as manifests
from tests.corpus import make_corpus


def config_of(root: Path, sources: dict[str, tuple[int, ...]]):
    path = make_corpus(root, sources, vocab_size=8192, chunk_tokens=128)
    return demo.config_without_absent(manifests.load(path), path)


def test_mixture_of_a_machine_that_has_all_sources(tmp_path: Path):
    names = ("book", "code", "encyclopedia", "web", "dialogue")
    cfg = config_of(tmp_path, dict.fromkeys(names, (4,)))
    assert {name for name, _ in cfg.data.mixture[0].weights} == set(names)


def test_absent_sources_are_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture):
    cfg = config_of(tmp_path, {"code": (4,), "encyclopedia": (4,), "web": (4,)})
    assert dict(cfg.data.mixture[0].weights) == {"code": 0.35, "encyclopedia": 0.1, "web": 0.08}
    assert "not to be had here: book, dialogue" in capsys.readouterr().out
