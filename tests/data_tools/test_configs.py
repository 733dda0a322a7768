"""The shipped recipes are whole; that for general Chinese builds a corpus from five formats."""

import bz2
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.recipe import Recipe
from jaxlm.data import manifest
from jaxlm.schema import load
from tests.data_tools import raw, small

CONFIGS = Path(__file__).parents[2] / "configs/data"
RECIPES, CHINESE = sorted(CONFIGS.glob("*.py")), CONFIGS / "chinese.py"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_whole(path):
    assert load(Recipe, path).sources


def write_raw(root: Path) -> None:
    """Files in the format of each source, with made text."""
    for kind in ("web", "book", "encyclopedia", "code", "dialogue"):
        (root / kind).mkdir(parents=True)
    for n in range(40):
        (root / f"book/{n}.txt").write_text(small.chinese(n + 0), encoding="utf-8")
        (root / f"code/{n}.py").write_text(small.code(n, 30), encoding="utf-8")
    pages = (raw.response(raw.page(small.chinese(n + 100))) for n in range(40))
    (root / "web/a.warc.gz").write_bytes(b"".join(gzip.compress(page, mtime=0) for page in pages))
    articles = "".join(raw.wiki_page(n, f"T{n}", small.chinese(n + 200)) for n in range(40))
    dump = bz2.compress(f"{raw.HEAD}{articles}{raw.TAIL}".encode())
    (root / "encyclopedia/a.xml.bz2").write_bytes(dump)
    talks = [[[small.chinese(n + 300), small.chinese(n + 400)]] for n in range(40)]
    lines = "".join(json.dumps(talk, ensure_ascii=False) + "\n" for talk in talks)
    (root / "dialogue/a.jsonl").write_text(lines, encoding="utf-8")


def test_general_chinese(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    changes = ["tokenizer.vocab_size=1500", "tokenizer.reserved=20", "pack.chunk_tokens=32"]
    changes += ["mixture.tokens=4000", "mixture.tolerance=1.0", "mixture.max_epochs=1000.0"]
    changes += ["workers=1"]
    recipe = load(Recipe, CHINESE, changes)
    scored = tuple(rule for rule in recipe.rules if rule.weight)  # the others drop made text
    small.run(replace(recipe, rules=scored), tmp_path)
    corpus = manifest.load(tmp_path / "manifest.json")
    assert {s.type for s in corpus.shards} == {"web", "book", "encyclopedia", "code", "dialogue"}
    assert [stage.until for stage in corpus.mixture.stages] == [0.9, 1.0]
    assert "mixture of " in capsys.readouterr().out
