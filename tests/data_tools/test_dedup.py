"""Exact duplicates: one of each content stays, whatever the order, partitions and buckets."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from data_tools.dedup import exact
from data_tools.document import Document, Drop, table_writer
from data_tools.drops import standing
from data_tools.engines import InProcess
from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
from data_tools.stage import Input, Partition, Stage, StageResult, run_stage

NO_HELDOUT = HeldoutConfig(0)


def corpus() -> list[Document]:
    """300 documents of 100 texts."""
    return [Document.make(f"text {i % 100}", f"s{i % 3}", "web", "f", i, {}) for i in range(300)]


def dedup(
    root: Path,
    documents: list[Document],
    partitions: int,
    buckets: int,
    heldout: HeldoutConfig = NO_HELDOUT,
    rules: Sequence[str] = ("exact_duplicate",),
) -> tuple[set[bytes], dict[bytes, str]]:
    """(Ids that stay, id -> detail of its drop), through the stages."""
    tables = {}
    for i in range(partitions):
        path = root / f"raw-{i:05d}.parquet"
        path.parent.mkdir(exist_ok=True)
        with table_writer(path) as write:
            for d in documents[i::partitions]:
                write(d)
        tables[f"raw-{i:05d}"] = (Input(path, path.stem, "1"),)

    def run(stage: Stage, partitions: Sequence[Partition]) -> StageResult:
        return run_stage(stage, partitions, root / stage.name, InProcess())

    verdicts = exact.find(run, list(tables.items()), exact.ExactConfig(buckets), heldout)
    stay, lost = set(), {}
    for name, documents_of in tables.items():
        for found in standing(documents_of, verdicts.about(name)):
            if isinstance(found, Document):
                stay.add(found.id)
            else:
                document, drop = found
                assert isinstance(drop, Drop) and drop.rule in rules
                lost[document.id] = drop.detail
    return stay, lost


@pytest.mark.parametrize(("partitions", "buckets"), [(1, 1), (1, 16), (3, 4), (7, 1)])
def test_the_smallest_id_of_each_content_stays(tmp_path, partitions, buckets):
    documents = corpus()
    random.Random(partitions).shuffle(documents)
    winners = {}
    for d in documents:
        winners[d.content_hash] = min(d.id, winners.get(d.content_hash, d.id))
    stay, lost = dedup(tmp_path / "x", documents, partitions, buckets)
    assert stay == set(winners.values()) and len(stay) == 100
    assert lost == {
        d.id: f"copy of document {winners[d.content_hash].hex()}"
        for d in documents
        if d.id not in stay
    }


def test_without_copies_nothing_is_written(tmp_path):
    documents = corpus()[:100]
    stay, lost = dedup(tmp_path / "x", documents, 2, 4)
    assert len(stay) == 100 and not lost
    assert not list(tmp_path.glob("x/exact_duplicates/*/*.parquet"))


def test_a_restored_document_stays_against_the_verdict(tmp_path):
    documents = corpus()
    _, lost = dedup(tmp_path / "x", documents, 1, 1)
    (table,) = (tmp_path / "x").glob("exact_duplicates/*/raw-00000.parquet")
    restored = min(lost)
    found = standing(
        [Input(tmp_path / "x/raw-00000.parquet", "raw-00000", "1")],
        [Input(table, "raw-00000", "1")],
        (restored.hex(),),
    )
    assert {f.id for f in found if isinstance(f, Document)} - {
        d.id for d in documents if d.id not in lost
    } == {restored}


def test_an_empty_partition(tmp_path):
    assert dedup(tmp_path / "x", corpus()[:1], 2, 2)[0] == {corpus()[0].id}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_text_that_one_type_holds_out_goes_from_the_others(tmp_path, partitions):
    """Whatever the rules of that type do to it later: no rule brings the text into training."""
    heldout = HeldoutConfig(0.1, types=(("book", 0.6), ("none", 0.0)))
    types = ("web", "book", "none", "web", "book")
    documents = [
        Document.make(f"text {i % 40}", "s", types[i % 5 if i < 120 else 0], "f", i, {})
        for i in range(160)
    ]
    rules = ("exact_duplicate", HELDOUT_DUPLICATE)
    stay, lost = dedup(tmp_path / "x", documents, partitions, 4, heldout, rules)
    by_id = {d.id: d for d in documents}
    held = {d.id for d in documents if heldout.holds(d.read_hash, d.type)}
    held_texts = {by_id[id].text for id in held}
    assert not {by_id[id].text for id in stay - held} & held_texts
    assert {by_id[id].text for id in stay & held} == held_texts
    for id, detail in lost.items():
        text, barred = by_id[id].text, id not in held and by_id[id].text in held_texts
        same = [d.id for d in documents if d.text == text]
        if not barred:
            same = [d for d in same if by_id[d].type == by_id[id].type]
        first = min(d for d in same if not barred or d in held)
        words = ", which is held out" if barred else ""
        assert detail == f"copy of document {first.hex()}{words}"


def test_copies_of_held_out_texts_are_not_restored(tmp_path):
    heldout = HeldoutConfig(0.0, types=(("book", 0.99),))
    documents = [
        Document.make("text", "s", kind, "f", i, {}) for i, kind in enumerate(("book", "web"))
    ]
    rules = (HELDOUT_DUPLICATE,)
    _, lost = dedup(tmp_path / "x", documents, 1, 1, heldout, rules)
    assert set(lost) == {documents[1].id}
    (table,) = (tmp_path / "x").glob("exact_duplicates/*/raw-00000.parquet")
    files = [Input(p, "raw-00000", "1") for p in (tmp_path / "x/raw-00000.parquet", table)]
    found = standing(files[:1], files[1:], (documents[1].id.hex(),))
    assert [d.type for d in found if isinstance(d, Document)] == ["book"]
