"""What is held out stays held out, and training is clear of it: as a corpus grows and changes."""

import itertools
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.dedup.config import BandConfig, NearConfig
from data_tools.dedup.exact import ExactConfig
from data_tools.document import Document, read_tables
from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
from data_tools.pack.config import ExcludeConfig, PackConfig
from data_tools.recipe import Recipe, RuleConfig
from data_tools.source import SourceConfig
from data_tools.tokenizer.config import TokenizerConfig
from jaxlm.data.documents import TABLE
from tests.data_tools import small
from tests.data_tools.dedup.material import naive_jaccard

SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "jo", "ki", "lu", "me")
WORDS = ["".join(syllables) for syllables in itertools.product(SYLLABLES, repeat=3)]
LINE = "Read more on our page"
TYPES = ("web", "book")
COPIES = ("exact_duplicate", "near_duplicate", HELDOUT_DUPLICATE)


def recipe(*sources: SourceConfig, rules: tuple[RuleConfig, ...] = ()) -> Recipe:
    found = sources or tuple(
        SourceConfig(kind, kind, "jsonl", f"raw/{kind}", ("*.jsonl",)) for kind in TYPES
    )
    return replace(
        small.recipe(rules=rules or (RuleConfig("unicode_repair"),)),
        sources=found,
        heldout=HeldoutConfig(0.25, types=(("book", 0.5),)),
        # so many bands that no similar pair is missed: that is not what is tested here
        exact=ExactConfig(buckets=2),
        near=NearConfig(candidates=BandConfig(32, 2)),
        tokenizer=TokenizerConfig(
            vocab_size=300, sample_bytes=1 << 20, control_symbols=("<user>",), reserved=2
        ),
        pack=PackConfig(chunk_tokens=32),
        boilerplate=BoilerplateConfig(documents=10, sites=1, types=TYPES),
        partition_bytes=20_000,
    )


def text(seed: object, words: int = 120) -> list[str]:
    return random.Random(str(seed)).choices(WORDS, k=words)


def write(workdir: Path, kind: str, name: str, texts: list[str]) -> None:
    small.write_jsonl(workdir / f"raw/{kind}/{name}.jsonl", texts)


@dataclass(frozen=True)
class Corpus:
    """What a build made."""

    documents: dict[bytes, Document]
    """As they are after cleaning."""
    splits: dict[bytes, str]
    """Of those in shards."""
    rules: dict[bytes, str]
    """Of those that were dropped."""

    def of(self, split: str) -> set[bytes]:
        return {id for id, s in self.splits.items() if s == split}

    def texts(self, split: str) -> set[bytes]:
        """As they were read."""
        return {self.documents[id].read_hash for id in self.of(split)}


def build(recipe: Recipe, workdir: Path) -> Corpus:
    small.run(recipe, workdir, last="pack")
    tables = [pq.read_table(p).to_pylist() for p in workdir.glob(f"shards/*/{TABLE}")]
    dropped = [pq.read_table(p).to_pylist() for p in workdir.glob("dropped/*/dropped.parquet")]
    documents = read_tables(sorted(workdir.glob("stages/privacy/*/documents.parquet")))
    return Corpus(
        {d.id: d for d in documents},
        {row["id"]: row["split"] for rows in tables for row in rows},
        {row["id"]: row["rule"] for rows in dropped for row in rows},
    )


def assert_clear(corpus: Corpus, evaluated: dict[bytes, Document]) -> None:
    """No training text is, or is like, one that was ever evaluated."""
    assert not corpus.texts("train") & {d.read_hash for d in evaluated.values()}
    for id, other in itertools.product(corpus.of("train"), evaluated):
        if other in corpus.documents:
            assert naive_jaccard(corpus.documents[id], corpus.documents[other]) < 0.8


def grow(rng: random.Random, workdir: Path, number: int, known: list[str]) -> None:
    """A file more for each type: new texts, copies and near copies of any, in any type; some have
    a line that is boilerplate once ten documents have it."""
    for kind in TYPES:
        texts = []
        for i in range(14):
            words = text((number, kind, i, rng.random()), rng.randrange(100, 140))
            if known and rng.random() < 0.7:
                words = rng.choice(known).split()
                for place in rng.sample(range(len(words)), rng.choice((0, 0, 1, 1, 2))):
                    words[place] = rng.choice(WORDS)
            texts.append(" ".join(words))
        known += texts
        lines = [t + f"\n{LINE}" * (rng.random() < 0.25) for t in texts]
        write(workdir, kind, f"{rng.random()}", lines)


@pytest.mark.parametrize("seed", range(3))
def test_adding_documents_moves_no_evaluation_text_into_training(tmp_path, seed):
    rng = random.Random(seed)
    known: list[str] = []
    evaluated: dict[bytes, Document] = {}
    rules: set[str] = set()
    for number in range(3):
        grow(rng, tmp_path, number, known)
        corpus = build(recipe(), tmp_path)
        heldout = corpus.of("heldout")
        clusters = pq.read_table(tmp_path / "clusters.parquet").to_pylist()
        stands = {row["id"]: row["cluster"] for row in clusters}
        by_text = {(d.read_hash, d.type): id for id, d in corpus.documents.items()}
        for id, document in evaluated.items():
            here = id if id in corpus.documents else by_text[document.read_hash, document.type]
            assert stands.get(here, here) in heldout
        evaluated |= {id: corpus.documents[id] for id in heldout}
        assert_clear(corpus, evaluated)
        assert heldout and corpus.of("train")
        rules |= set(corpus.rules.values())
    assert rules == set(COPIES)


def test_no_setting_moves_a_document(tmp_path):
    rng = random.Random(7)
    known: list[str] = []
    for number in range(2):
        grow(rng, tmp_path, number, known)
    base = recipe()
    first = before = build(base, tmp_path)
    scored = (*base.rules, RuleConfig("min_length", {"characters": 740}, (), 1.0))
    evaluated = {id: first.documents[id] for id in first.of("heldout")}
    for changed in (
        replace(base, rules=(*base.rules, RuleConfig("min_length", {"characters": 700}))),
        replace(base, boilerplate=BoilerplateConfig(documents=1000, sites=1)),
        replace(base, tokenizer=replace(base.tokenizer, vocab_size=320)),
        replace(base, pack=PackConfig("best_fit", 64, salt="other")),
        replace(base, rules=scored, pack=replace(base.pack, exclude=(ExcludeConfig(below=0.5),))),
        replace(base, near=NearConfig()),
    ):
        after = build(changed, tmp_path)
        both = before.splits.keys() & after.splits.keys()
        assert len(both) > 10 and {id: before.splits[id] for id in both} == {
            id: after.splits[id] for id in both
        }
        assert not after.texts("train") & first.texts("heldout")
        evaluated |= {id: after.documents[id] for id in after.of("heldout")}
        assert not after.texts("train") & {d.read_hash for d in evaluated.values()}
        before = after


def test_what_says_the_same_as_a_held_out_text_is_not_restored(tmp_path):
    rng = random.Random(3)
    known: list[str] = []
    for number in range(2):
        grow(rng, tmp_path, number, known)
    before = build(recipe(), tmp_path)
    ids = {rule: sorted(i for i, r in before.rules.items() if r == rule) for rule in COPIES}
    assert min(map(len, ids.values())) > 0
    restored = tuple(id.hex() for some in ids.values() for id in some)
    after = build(replace(recipe(), restored=restored), tmp_path)
    back = {rule: [id in after.splits for id in some] for rule, some in ids.items()}
    assert all(back["near_duplicate"]) and not any(back[HELDOUT_DUPLICATE])
    assert any(back["exact_duplicate"])  # the others are copies of what says the same
    assert set(after.rules.values()) == {HELDOUT_DUPLICATE}
    assert {id: after.splits[id] for id in before.splits} == before.splits
    assert_clear(after, {id: after.documents[id] for id in after.of("heldout")})


def test_a_line_that_becomes_boilerplate_moves_no_document(tmp_path):
    for kind in TYPES:
        texts = [" ".join(text((kind, i))) for i in range(9)]
        write(tmp_path, kind, "a", [f"{t[:300]}.\n{LINE}\n{t[300:]}." for t in texts])
    before = build(recipe(), tmp_path)
    write(tmp_path, "web", "b", [f"{' '.join(text((i, 'new'), 60))}.\n{LINE}" for i in range(30)])
    after = build(recipe(), tmp_path)
    assert not any(LINE in d.text for d in after.documents.values())
    assert set(before.splits.values()) == {"train", "heldout"}
    assert {id: after.splits[id] for id in before.splits} == before.splits


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("x", "m"), ("m", "x")])
def test_a_copy_that_another_types_rules_drop_is_not_lost(tmp_path, names):
    """The same texts as web, where they are too short, and as a book, where they are not."""
    texts = [" ".join(text(i, 60)) for i in range(8)]
    sources = []
    for name, kind in zip(names, ("web", "book"), strict=True):
        small.write_jsonl(tmp_path / f"raw/{name}/t.jsonl", texts)
        sources.append(SourceConfig(name, kind, "jsonl", f"raw/{name}", ("*.jsonl",)))
    rules = (RuleConfig("min_length", {"characters": 500}, ("web",)),)
    work = small.run(
        replace(recipe(*sources, rules=rules), heldout=HeldoutConfig(0.4)), tmp_path, last="near"
    )
    kept = {c.partition: c.report["documents"] for c in work.results["clean"].commits}
    assert kept == {f"{names[0]}-00000": 0, f"{names[1]}-00000": 8}
    assert not list(tmp_path.glob("stages/near_duplicates/*/*-00000.parquet"))
