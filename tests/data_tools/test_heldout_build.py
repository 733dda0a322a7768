"""What is held out stays held out: cleaning, and copies that come later, move nothing to train."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.heldout import HeldoutConfig
from data_tools.recipe import PackConfig, Recipe, RuleConfig, TokenizerConfig
from data_tools.source import SourceConfig
from jaxlm.data.documents import TABLE
from tests.data_tools import small

SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "jo", "ki", "lu", "me")
WORDS = ["".join(syllables) for syllables in itertools.product(SYLLABLES, repeat=3)]


def recipe(*sources: SourceConfig, rules: tuple[RuleConfig, ...] = ()) -> Recipe:
    found = sources or (SourceConfig("web", "web", "jsonl", "raw/web", ("*.jsonl",)),)
    return replace(
        small.recipe(rules=rules or (RuleConfig("unicode_repair"),)),
        sources=found,
        heldout=HeldoutConfig(0.4),
        tokenizer=TokenizerConfig(vocab_size=300, sample_bytes=1 << 20, spares=2),
        pack=PackConfig(chunk_tokens=32),
        boilerplate=BoilerplateConfig(documents=10, sites=1),
    )


def splits(workdir: Path) -> dict[bytes, str]:
    """Id -> split, of the documents in the shards."""
    tables = [pq.read_table(p) for p in workdir.glob(f"shards/*/{TABLE}")]
    return {row["id"]: row["split"] for table in tables for row in table.to_pylist()}


def text(seed: object, words: int = 200) -> list[str]:
    return random.Random(str(seed)).choices(WORDS, k=words)


def edited(words: list[str], seed: object, at: int, longer: int) -> list[str]:
    return words[:at] + text(seed, 8) + words[at + 8 :] + text((seed, "more"), longer)


def write(workdir: Path, name: str, texts: list[str]) -> None:
    small.write_jsonl(workdir / f"raw/web/{name}.jsonl", texts)


def test_a_line_that_becomes_boilerplate_moves_no_document(tmp_path):
    line = "Read more on our page"
    pages = [f"{' '.join(text(i, 60))}.\n{line}\n{' '.join(text((i, 'b'), 60))}." for i in range(9)]
    write(tmp_path, "a", pages)
    small.run(recipe(), tmp_path, last="pack")
    before = splits(tmp_path)
    write(tmp_path, "b", [f"{' '.join(text((i, 'new'), 60))}.\n{line}" for i in range(30)])
    small.run(recipe(), tmp_path, last="pack")
    after = splits(tmp_path)
    removed = pq.read_table(tmp_path / "stages/clean/web-00000/documents.parquet")["text"]
    assert not any(line in t for t in removed.to_pylist())
    assert set(before.values()) == {"train", "heldout"}
    assert {id: after[id] for id in before} == before


def test_a_better_copy_of_a_copy_takes_nothing_out_of_heldout(tmp_path):
    """e stands for d, and is held out with it; then f comes, near d and not near e."""
    base = {n: text(n) for n in range(30)}
    write(tmp_path, "d", [" ".join(words) for words in base.values()])
    write(tmp_path, "e", [" ".join(edited(words, (n, "e"), 20, 3)) for n, words in base.items()])
    small.run(recipe(), tmp_path, last="pack")
    before = splits(tmp_path)
    write(tmp_path, "f", [" ".join(edited(words, (n, "f"), 120, 6)) for n, words in base.items()])
    small.run(recipe(), tmp_path, last="pack")
    after = splits(tmp_path)
    # d goes for f now, and e is on its own
    stay = [id for id, split in before.items() if split == "heldout" and id in after]
    assert len(after) > 55 and len(stay) > 10
    assert [after[id] for id in stay] == ["heldout"] * len(stay)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("x", "m"), ("m", "x")])
def test_a_copy_that_another_types_rules_drop_is_not_lost(tmp_path, names):
    """The same texts as web, where they are too short, and as a book, where they are not."""
    texts = [" ".join(text(i, 60)) for i in range(8)]
    sources = []
    for name, kind in zip(names, ("web", "book"), strict=True):
        small.write_jsonl(tmp_path / f"raw/{name}/t.jsonl", texts)
        sources.append(SourceConfig(name, kind, "jsonl", f"raw/{name}", ("*.jsonl",)))
    rules = (RuleConfig("min_length", {"characters": 500}, ("web",)),)
    work = small.run(recipe(*sources, rules=rules), tmp_path, last="near")
    kept = {c.partition: c.report["documents"] for c in work.results["clean"].commits}
    assert kept == {f"{names[0]}-00000": 0, f"{names[1]}-00000": 8}
    assert not list(tmp_path.glob("stages/near_duplicates/*/*-00000.parquet"))
