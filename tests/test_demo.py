"""The parts of the demo that need no training; the whole is in tests/system."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.small_corpus import make_corpus
from data_tools.mixture import in_manifest, without
from data_tools.recipe import Recipe
from jaxlm import config, schema
from jaxlm.data import manifest as manifests
from jaxlm.data import mixture

CONFIGS = Path(__file__).parents[1] / "configs"
CHUNKS = {"book": 3774, "code": 8447, "encyclopedia": 913, "web": 1457, "dialogue": 84}
"""Of 128 tokens, on a machine that has all sources."""


@pytest.mark.parametrize("absent", [(), ("book",), ("book", "dialogue"), ("encyclopedia", "web")])
def test_the_demo_finds_its_proportions_on_machines_that_have_less(tmp_path: Path, absent):
    recipe = schema.load(Recipe, CONFIGS / "data" / "demo.py")
    sources = {name: (n,) for name, n in CHUNKS.items() if name not in absent}
    path = make_corpus(tmp_path / "corpus", sources, vocab_size=8192, chunk_tokens=128)
    asked = in_manifest(without(recipe.mixture, absent), dict.fromkeys(sources, 1.0))
    manifest = replace(manifests.load(path), mixture=asked)

    cfg = config.load(CONFIGS / "demo.py", (f"data.manifest={path}",))
    assert cfg.end * cfg.data.seq_len == recipe.mixture.tokens
    plan = mixture.of_run(manifest, cfg.data).plan(cfg.end)
    assert mixture.refusal(plan) is None
    assert {t.name for t in plan.types} == sources.keys()
    if not absent:
        assert {t.name: round(t.real, 2) for t in plan.types} == {
            "book": 0.45, "code": 0.35, "encyclopedia": 0.10, "web": 0.08, "dialogue": 0.02,
        }  # fmt: skip
