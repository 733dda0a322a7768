"""Shards: every token of every document is there once, in hash order, and counted."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from data_tools.document import Document
from data_tools.heldout import HeldoutConfig
from data_tools.pack import CHUNKS, ShardConfig, pack_partition
from data_tools.shards import chunk_count, chunks
from data_tools.shuffle import ShuffleConfig, shuffle_partition
from data_tools.stage import Input, Partition
from data_tools.tokenize import SCHEMA, id_dtype
from jaxlm.data.documents import TABLE, order_key

BOS, PAD = 1, 3


def row(i: int, ids: Sequence[int], vocab_size: int) -> dict:
    d = Document.make(f"text {i}", "s", "web", "f", i, {})
    values = {name: getattr(d, name) for name in SCHEMA.names[:8]} | {"relatives": []}
    data = np.array(ids, id_dtype(vocab_size)).tobytes()
    return values | {"text_bytes": 2 * len(ids), "tokens": len(ids), "ids": data}


def rows(count: int, vocab_size: int = 1000) -> list[dict]:
    rng = random.Random(count)
    return [
        row(i, [rng.randrange(4, vocab_size) for _ in range(rng.randrange(1, 40))], vocab_size)
        for i in range(count)
    ]


def pack(root: Path, tables: Sequence[Sequence[dict]], **fields: object) -> tuple[dict, Path]:
    """Packs tables of documents into one shard: (report, directory)."""
    files = []
    root.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(pa.Table.from_pylist(list(table), SCHEMA), root / f"{i}.parquet")
        files.append(Input(root / f"{i}.parquet", str(i), ""))
    values = {"source": "s", "type": "web", "split": "train", "salt": "order", "chunk_tokens": 16}
    values |= {"vocab_size": 1000, "bos_id": BOS, "pad_id": PAD} | fields
    config = ShardConfig(**values)
    return pack_partition(Partition("shard", config, {"documents": tuple(files)}), root), root


def records(directory: Path, dtype: str = "<u2") -> list[np.ndarray]:
    reader = ArrayRecordReader(str(directory / CHUNKS))
    return [np.frombuffer(r, dtype) for r in reader.read_all()]


def ids_of(row: dict) -> list[int]:
    return np.frombuffer(row["ids"], "<u2").tolist()


def test_every_token_once_in_hash_order(tmp_path):
    documents = rows(50)
    report, out = pack(tmp_path / "a", [documents[:20], documents[20:]])
    found = records(out)
    assert all(len(r) == 17 for r in found)
    assert all(a[-1] == b[0] for a, b in itertools.pairwise(found))
    stream = [int(found[0][0]), *(int(t) for r in found for t in r[1:])]
    ordered = sorted(documents, key=lambda r: order_key(r["id"], "order"))
    expected = [t for r in ordered for t in [BOS, *ids_of(r)]]
    padding = len(stream) - len(expected)
    assert stream == expected + [PAD] * padding and 0 <= padding < 16
    tokens = sum(r["tokens"] for r in documents)
    assert report == {
        "source": "s",
        "type": "web",
        "split": "train",
        "documents": 50,
        "chunks": len(found),
        "tokens": tokens,
        "text_bytes": 2 * tokens,
        "padding": padding,
    }
    # what a trainer weighs: targets that are neither BOS nor PAD
    targets = np.concatenate([r[1:] for r in found])
    assert int(((targets != BOS) & (targets != PAD)).sum()) == report["tokens"]


def test_the_bytes_do_not_depend_on_how_documents_arrive(tmp_path):
    documents = rows(60)
    _, one = pack(tmp_path / "one", [documents])
    shuffled = random.Random(1).sample(documents, 60)
    _, other = pack(tmp_path / "other", [shuffled[:7], shuffled[7:8], shuffled[8:]])
    assert (one / CHUNKS).read_bytes() == (other / CHUNKS).read_bytes()
    assert (one / TABLE).read_bytes() == (other / TABLE).read_bytes()


def test_a_changed_salt_is_another_order(tmp_path):
    _, one = pack(tmp_path / "one", [rows(30)])
    _, other = pack(tmp_path / "other", [rows(30)], salt="other")
    a, b = pq.read_table(one / TABLE), pq.read_table(other / TABLE)
    assert a["id"].to_pylist() != b["id"].to_pylist()
    assert sorted(a["id"].to_pylist()) == sorted(b["id"].to_pylist())


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, "<u2"), (65_537, "<u4"), (300_000, "<u4")]
)
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path, vocab_size, dtype):
    ids = [vocab_size - 1, 4, vocab_size - 1]
    assert id_dtype(vocab_size) == dtype
    _, out = pack(tmp_path / "a", [[row(0, ids, vocab_size)]], vocab_size=vocab_size)
    (record,) = records(out, dtype)
    assert record.tolist() == [BOS, *ids, *[PAD] * 13]


@pytest.mark.parametrize("length", [2, 16, 17, 18, 33, 34])
def test_the_tail_is_padded_and_no_chunk_is_empty(length):
    stream = np.arange(length, dtype="<u2")
    cut = list(chunks(stream, 16, PAD))
    assert len(cut) == chunk_count(length, 16) == -(-(length - 1) // 16)
    targets = np.concatenate([c[1:] for c in cut])
    assert targets[: length - 1].tolist() == list(range(1, length))
    assert (targets[length - 1 :] == PAD).all()
    assert (cut[-1][1:] != PAD).any()


def test_no_documents_no_files(tmp_path):
    report, out = pack(tmp_path / "a", [])
    assert report == {"documents": 0} and not list(out.iterdir())


def test_the_table_gives_each_documents_place(tmp_path):
    documents = {r["id"]: r for r in rows(40)}
    report, out = pack(tmp_path / "a", [list(documents.values())])
    found = records(out)
    stream = np.concatenate([found[0][:1], *(r[1:] for r in found)])
    table = pq.read_table(out / TABLE)
    assert table["key"].to_pylist() == sorted(table["key"].to_pylist())
    for entry in table.to_pylist():
        span = stream[entry["start"] : entry["start"] + 1 + entry["tokens"]]
        assert span.tolist() == [BOS, *ids_of(documents[entry["id"]])]
    assert sum(table["tokens"].to_pylist()) == report["tokens"]


# ---- shuffle -------------------------------------------------------------------------------------


def shuffle(root: Path, config: ShuffleConfig, documents: list[dict]) -> dict[str, list[bytes]]:
    root.mkdir()
    with pq.ParquetWriter(root / "in", SCHEMA) as table:
        for part in (documents[:9], documents[9:]):
            table.write_table(pa.Table.from_pylist(part, SCHEMA))
    out = root / "out"
    out.mkdir()
    shuffle_partition(Partition("p", config, {"tokens": (Input(root / "in", "p", ""),)}), out)
    return {p.stem: pq.read_table(p)["id"].to_pylist() for p in sorted(out.iterdir())}


def test_shuffle_by_key_range_and_split(tmp_path):
    documents = rows(400)
    held = HeldoutConfig(0.2)
    found = shuffle(tmp_path / "a", ShuffleConfig("order", held, (3, 1)), documents)
    assert sorted(found) == ["heldout-00000", "train-00000", "train-00001", "train-00002"]
    assert sorted(id for ids in found.values() for id in ids) == sorted(r["id"] for r in documents)
    hashes = {r["id"]: r["read_hash"] for r in documents}
    assert all(held.holds([hashes[id]]) == (n[0] == "h") for n, ids in found.items() for id in ids)
    keys = [[order_key(id, "order") for id in found[f"train-0000{k}"]] for k in range(3)]
    assert max(keys[0]) < min(keys[1]) and max(keys[1]) < min(keys[2])


def test_more_shards_than_files_may_be_open(tmp_path, monkeypatch):
    documents, config = rows(400), ShuffleConfig("order", HeldoutConfig(0.2), (9, 3))
    at_once = shuffle(tmp_path / "a", config, documents)
    monkeypatch.setattr("data_tools.shuffle.OPEN_FILES", 5)
    assert shuffle(tmp_path / "b", config, documents) == at_once and len(at_once) == 12
    for path in (tmp_path / "a/out").iterdir():
        assert path.read_bytes() == (tmp_path / "b/out" / path.name).read_bytes()


def test_a_document_is_held_out_for_those_that_it_stands_for(tmp_path):
    held = HeldoutConfig(0.2)
    plain = [r for r in rows(200) if not held.holds([r["read_hash"]])]
    inside = next(r["read_hash"] for r in rows(200) if held.holds([r["read_hash"]]))
    plain[7]["relatives"] = [inside]
    found = shuffle(tmp_path / "a", ShuffleConfig("order", held, (1, 1)), plain)
    assert found["heldout-00000"] == [plain[7]["id"]]


def test_another_order_holds_out_the_same_documents(tmp_path):
    documents, held = rows(200), HeldoutConfig(0.2)
    one = shuffle(tmp_path / "a", ShuffleConfig("one", held, (2, 1)), documents)
    two = shuffle(tmp_path / "b", ShuffleConfig("two", held, (2, 1)), documents)
    assert sorted(one["heldout-00000"]) == sorted(two["heldout-00000"])
    assert sorted(one["train-00000"]) != sorted(two["train-00000"])
