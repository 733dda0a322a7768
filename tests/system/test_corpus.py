"""200 MB of real text, salted, through the command: every salt is found, and nothing else goes."""

import re
import shutil
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from bench.near_copies import jaccard, shingles
from bench.salted_recipe import SOURCES
from tests.system import salted
from tests.system.salted import Built

MEGABYTES = 200
CODE = ("stdlib", "packages")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache) -> Iterator[Built]:
    out = tmp_path_factory.mktemp("salted")
    inventory = salted.make(out, cache, MEGABYTES)
    if inventory["missing"]:
        pytest.skip(f"this machine lacks a source: {inventory['missing']}")
    assert sum(inventory["bytes"].values()) >= 0.99 * MEGABYTES * 1e6
    yield salted.build(out)
    shutil.rmtree(out)


def same(built: Built, one: bytes, other: bytes) -> bool:
    return built.survivor(one) == built.survivor(other)


def naive(built: Built, one: bytes, other: bytes) -> float:
    """Exact similarity of two documents, computed without the code under test."""
    code = built.sources[one] in CODE
    return jaccard(shingles(built.texts[one], code), shingles(built.texts[other], code))


def plain(line: str) -> str:
    """A line with the white space that HTML has."""
    return " ".join(line.split())


def form(line: str) -> str:
    """What lines have in common that differ in case, white space or numbers only."""
    return re.sub(r"\d+", "0", plain(line).casefold())


def in_order(wanted: Sequence[str], lines: Sequence[str]) -> int:
    """How many of the lines are there, after the one before them."""
    at = found = 0
    for line in map(plain, wanted):
        if line in lines[at:]:
            at, found = lines.index(line, at) + 1, found + 1
    return found


@pytest.mark.system
def test_a_corpus_is_the_same_when_made_again(tmp_path, cache):
    for name in ("one", "other"):
        salted.make(tmp_path / name, cache, 2)
    files = [p.relative_to(tmp_path / "one") for p in sorted((tmp_path / "one").rglob("*.*"))]
    assert len(files) > 100
    for file in files:
        if (tmp_path / "one" / file).is_file():
            assert (tmp_path / "one" / file).read_bytes() == (
                tmp_path / "other" / file
            ).read_bytes(), file


@pytest.mark.system
def test_of_exact_copies_one_stays(built: Built):
    types = {source.name: source.type for source in SOURCES}
    across = []
    for salt in built.salts("exact"):
        copy, original = built.id(salt), built.id(salt["of"])
        found = copy in built.exact or original in built.exact
        if types[salt["source"]] == types[salt["of"]["source"]]:
            assert found and same(built, copy, original), salt
        else:  # near dedup's, when each has gone through its own type's rules
            assert not found, salt
            across.append(same(built, copy, original))
    print(f"of {len(across)} copies in another type {statistics.mean(across):.3f} are found")
    assert statistics.mean(across) >= 0.95


@pytest.mark.system
def test_near_copies_of_high_similarity_are_found_and_others_left(built: Built):
    found: dict[float, list[bool]] = defaultdict(list)
    for salt in built.salts("near"):
        pair = built.id(salt), built.id(salt["of"])
        assert all(id in built.texts or id in built.exact for id in pair), salt["name"]
        level = round(salt["jaccard"] * 20) / 20
        together = same(built, *pair)
        found[level].append(together)
        if together and salt["jaccard"] < 0.7:  # only through a third document, similar to both
            assert built.survivor(pair[0]) not in pair, salt
    shares = {level: statistics.mean(v) for level, v in sorted(found.items())}
    print({level: f"{share:.3f} of {len(found[level])}" for level, share in shares.items()})
    high = [f for level in found if level >= 0.85 for f in found[level]]
    assert len(high) >= 1_000
    assert statistics.mean(high) >= 0.95
    assert all(share <= 0.05 for level, share in shares.items() if level <= 0.7)


@pytest.mark.system
def test_what_near_dedup_drops_is_similar_to_what_it_keeps(built: Built):
    assert len(built.near) >= 2_000
    off = []
    for id, kept in built.near.items():
        assert kept.id in built.texts and kept.id not in built.near
        similarity = naive(built, id, kept.id)
        assert similarity >= 0.7, (id.hex(), kept)
        off.append(abs(similarity - kept.similarity))
    # the definitions of a word differ in a few signs
    assert statistics.mean(off) < 0.005 and max(off) < 0.1


@pytest.mark.system
def test_distinct_short_texts_never_merge(built: Built):
    ids = [built.id(salt) for salt in built.salts("short")]
    assert len(ids) >= 5_000
    assert not [built.texts[id] for id in ids if built.survivor(id) != id]


@pytest.mark.system
def test_no_source_is_wiped_out(built: Built):
    total = Counter(built.sources.values())
    lost = Counter(built.sources[id] for id in (*built.exact, *built.near))
    assert set(total) == set(built.sources.values()) and len(total) == 9
    for source, count in total.items():
        assert lost[source] <= 0.5 * count, (source, lost[source], count)


@pytest.mark.system
def test_boilerplate_is_gone_and_the_text_around_it_intact(built: Built):
    pages = [p for p in built.salts("boilerplate") if built.id(p) in built.cleaned]
    assert len(pages) >= 0.98 * len(built.salts("boilerplate"))
    places = Counter(key for p in pages for key in {*map(form, p["text"].split("\n"))})
    inserted = 0
    own, torn = Counter[str](), Counter[str]()
    for page in pages:
        lines = [plain(line) for line in built.cleaned[built.id(page)].split("\n") if line.strip()]
        assert not {*page["lines"]} & {*lines}, page["name"]
        inserted += len(page["lines"])
        # a line of the page that is on others too may be boilerplate of its own
        wanted = [w for w in page["text"].split("\n") if w.strip() and places[form(w)] == 1]
        own[page["source"]] += len(wanted)
        torn[page["source"]] += len(wanted) - in_order(wanted, lines)
    print(inserted, own, torn)
    assert inserted > 5_000 and own.total() > 15_000
    assert torn["reviews"] == torn["crawl"] == 0
    # descriptions have owners' lines of their own, and ftfy's shows damage that is repaired
    assert torn["descriptions"] <= 0.002 * own["descriptions"]


@pytest.mark.system
def test_personal_data_is_masked_and_the_sentence_around_it_stays(built: Built):
    seen: Counter[str] = Counter()
    for page in built.salts("personal"):
        text = built.texts[built.id(page)]
        for value in page["values"]:
            assert value["value"] not in text, value
            assert value["after"] in text, value
            seen[value["type"]] += 1
    assert min(seen.values()) > 100, seen


@pytest.mark.system
def test_mojibake_is_repaired_where_nothing_was_lost(built: Built):
    repaired: dict[str, list[float]] = defaultdict(list)
    for salt in built.salts("mojibake"):
        if salt["encoding"] == "gbk":
            continue
        pairs = zip_longest(salt["text"].split("\n"), built.cleaned[built.id(salt)].split("\n"))
        right = sum(len(one) for one, other in pairs if one and one == other)
        repaired[salt["encoding"]].append(right / len(salt["text"].replace("\n", "")))
    print({encoding: f"{statistics.mean(v):.4f} of {len(v)}" for encoding, v in repaired.items()})
    assert min(repaired["latin-1"]) == 1
    # a line of a single character says too little to be repaired
    assert min(repaired["cp1252"]) > 0.97


@pytest.mark.system
def test_mojibake_that_lost_bytes_is_dropped(built: Built):
    rules = {row["id"]: row["rule"] for row in built.table("clean", "dropped")}
    lossy = [salt for salt in built.salts("mojibake") if salt["encoding"] == "gbk"]
    assert len(lossy) > 10
    assert {rules.get(built.id(salt)) for salt in lossy} == {"mojibake"}


@pytest.mark.system
def test_what_cannot_be_read_is_counted_with_file_and_place(built: Built):
    bad = {(row["path"], row["place"]) for row in built.table("read", "bad")}
    dropped = {row["path"] for row in built.table("clean", "dropped")}
    for salt in built.salts("broken"):
        if salt["dropped"]:
            assert salt["path"] in dropped, salt
        else:
            assert (salt["path"], salt["place"]) in bad, salt
    assert len(bad) == sum(not salt["dropped"] for salt in built.salts("broken"))
    # what stands before a fault, or between two, is read
    assert {name for source, name in built.ids if name.startswith("spare ")} == {
        "spare 0",
        "spare 1",
        "spare 2",
        "spare 4",
    }
