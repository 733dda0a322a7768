"""Exact duplicates: one of each content stays, whatever the order, partitions and buckets."""

import random
from pathlib import Path

import pytest

from data_tools.dedup.exact import (
    bucket_name,
    duplicates_name,
    duplicates_partition,
    keys_partition,
    survivors,
)
from data_tools.document import Document, Drop, table_writer
from data_tools.stage import Input, Partition


def corpus() -> list[Document]:
    """300 documents of 100 texts."""
    return [Document.make(f"text {i % 100}", f"s{i % 3}", "web", "f", i, {}) for i in range(300)]


def dedup(
    root: Path, documents: list[Document], partitions: int, buckets: int
) -> tuple[set[bytes], dict[bytes, str]]:
    """(Ids that stay, id -> detail of its drop), through the three functions."""
    root.mkdir()
    names = [f"p{i}" for i in range(partitions)]
    for i, name in enumerate(names):
        (root / name).mkdir()
        with table_writer(root / name / "documents.parquet") as write:
            for d in documents[i::partitions]:
                write(d)
        keys_partition(
            partition(name, buckets, documents=[root / name / "documents.parquet"]), root / name
        )
    (root / "lost").mkdir()
    files: dict[str, list[Path]] = {name: [] for name in names}
    for b in range(buckets):
        out = root / f"b{b}"
        out.mkdir()
        inputs = [
            Input(root / n / bucket_name(b), n, "")
            for n in names
            if (root / n / bucket_name(b)).exists()
        ]
        if inputs:
            duplicates_partition(Partition(f"b{b}", None, {"keys": tuple(inputs)}), out)
        for n in names:
            if (out / duplicates_name(n)).exists():
                files[n].append(out / duplicates_name(n))
    stay, lost = set(), {}
    for n in names:
        task = partition(n, None, documents=[root / n / "documents.parquet"], duplicates=files[n])
        for found in survivors(task.inputs):
            if isinstance(found, Document):
                stay.add(found.id)
            else:
                document, drop = found
                assert isinstance(drop, Drop) and drop.rule == "exact_duplicate"
                lost[document.id] = drop.detail
    return stay, lost


def partition(name: str, config: object, **inputs: list[Path]) -> Partition:
    return Partition(
        name, config, {k: tuple(Input(p, name, "") for p in v) for k, v in inputs.items()}
    )


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
    assert not list(tmp_path.glob("x/b*/*"))


def test_an_empty_partition(tmp_path):
    assert dedup(tmp_path / "x", corpus()[:1], 2, 2)[0] == {corpus()[0].id}
