"""Shards: every token of every document is there once, in hash order, and counted."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from jax import numpy as jnp

from data_tools.pack import shards
from data_tools.pack.concat import concat
from data_tools.pack.config import PackConfig
from data_tools.tokenize import id_dtype
from jaxlm.data.documents import order_key
from jaxlm.data.manifest import Packing
from jaxlm.step import read_rows
from tests.data_tools.pack.material import BOS, PAD, Built, Row, build, ids_of, row, rows

SHARD = "s.train-00000-of-00001"
METHODS: tuple[Packing, ...] = ("concat", "best_fit")


def packed(root: Path, method: Packing = "concat") -> tuple[list[Row], Built]:
    """One shard of 50 documents, in two partitions."""
    documents = rows(50)
    parts = {"s-00000": documents[:20], "s-00001": documents[20:]}
    return documents, build(root, parts, PackConfig(method, 16))


def test_concat_has_every_token_once_in_hash_order(tmp_path):
    documents, built = packed(tmp_path)
    records = built.records(SHARD)
    assert records.shape[1] == 17 and (records[:-1, -1] == records[1:, 0]).all()
    ordered = sorted(documents, key=lambda r: order_key(r["id"], "order"))
    expected = [t for r in ordered for t in [BOS, *ids_of(r)]]
    stream = built.stream(SHARD).tolist()
    padding = len(stream) - len(expected)
    assert stream == expected + [PAD] * padding and 0 <= padding < 16
    tokens = sum(r["tokens"] for r in documents)
    report = built.shards[SHARD].report
    assert report == {
        "source": "s",
        "origin": "s",
        "type": "web",
        "split": "train",
        "documents": 50,
        "chunks": len(records),
        "tokens": tokens,
        "text_bytes": 2 * tokens,
        "padding": padding,
        "truncated": report["truncated"],
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_trainer_weighs_each_token_once_and_no_padding(tmp_path, method):
    documents, built = packed(tmp_path, method)
    inputs = read_rows(jnp.asarray(built.records(SHARD)), BOS, PAD)
    targets, weights = np.asarray(inputs.targets), np.asarray(inputs.weights)
    assert weights.sum() == sum(r["tokens"] for r in documents)
    assert not weights[(targets == PAD) | (targets == BOS)].any()
    assert sorted(targets[weights > 0].tolist()) == sorted(t for r in documents for t in ids_of(r))


def test_best_fit_rows_of_several_chunks_keep_documents_apart(tmp_path):
    documents, built = packed(tmp_path, "best_fit")
    records = built.records(SHARD)
    assert (records[:, 0] == BOS).all() and (records[:, -1] == BOS).all()
    stream = built.stream(SHARD)
    inputs = read_rows(jnp.asarray(stream[None]), BOS, PAD)  # one row of all chunks
    segments, positions = np.asarray(inputs.segments)[0], np.asarray(inputs.positions)[0]
    by_id = {r["id"]: ids_of(r) for r in documents}
    for number, entry in enumerate(built.table(SHARD), 1):
        here = slice(entry["start"], entry["start"] + 1 + entry["tokens"])
        assert (segments[here] == number).all()
        assert positions[here].tolist() == list(range(entry["tokens"] + 1))
        ids = by_id[entry["id"]][entry["skip"] :][: entry["tokens"]]
        assert stream[here].tolist() == [BOS, *ids]


@pytest.mark.parametrize("method", METHODS)
def test_the_table_gives_each_piece_its_place(tmp_path, method):
    documents, built = packed(tmp_path, method)
    by_id = {r["id"]: r for r in documents}
    stream, table = built.stream(SHARD), built.table(SHARD)
    found: dict[bytes, list[int]] = {}
    for entry in sorted(table, key=lambda e: e["skip"]):
        document = by_id[entry["id"]]
        assert entry["key"] == order_key(entry["id"], "order")
        assert (entry["source"], entry["type"], entry["split"]) == ("s", "web", "train")
        assert entry["shard"] == SHARD and entry["quality"] == document["quality"]
        ids = found.setdefault(entry["id"], [])
        assert entry["skip"] == len(ids) and stream[entry["start"]] == BOS
        ids += stream[entry["start"] + 1 :][: entry["tokens"]].tolist()
    assert found == {id: ids_of(document) for id, document in by_id.items()}
    assert [e["start"] for e in table] == sorted(e["start"] for e in table)
    assert (len(table) > len(documents)) == (method == "best_fit")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block", [1, 16, 40, 200])
def test_the_size_of_what_is_put_together_changes_nothing(tmp_path, monkeypatch, method, block):
    documents = rows(60, longest=90)
    whole = build(tmp_path / "a", {"s-00000": documents}, PackConfig(method, 8))
    monkeypatch.setattr(shards, "BLOCK_TOKENS", block)
    parts = build(tmp_path / "b", {"s-00000": documents}, PackConfig(method, 8))
    assert whole.files() == parts.files()


@pytest.mark.parametrize("method", METHODS)
def test_the_bytes_do_not_depend_on_partitions_or_workers(tmp_path, method):
    documents, pack = rows(200), PackConfig(method, 16, shard_bytes=2000)
    one = build(tmp_path / "one", {"s-00000": documents}, pack, heldout=0.1)
    mixed = random.Random(1).sample(documents, 200)
    parts = {"s-00000": mixed[:7], "s-00001": mixed[7:8], "s-00002": mixed[8:], "s-00003": []}
    other = build(tmp_path / "other", parts, pack, heldout=0.1, workers=2)
    assert len(one.shards) == 5 and one.files() == other.files()


def test_a_changed_salt_is_another_order(tmp_path):
    one = build(tmp_path / "one", {"s-00000": rows(30)}, PackConfig(chunk_tokens=16))
    other = build(tmp_path / "other", {"s-00000": rows(30)}, PackConfig(chunk_tokens=16, salt="b"))
    a, b = ([e["id"] for e in built.table(SHARD)] for built in (one, other))
    assert a != b and sorted(a) == sorted(b)


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_536, "<u2"), (65_537, "<u4"), (300_000, "<u4")]
)
@pytest.mark.parametrize("method", METHODS)
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path, vocab_size, dtype, method):
    ids = [vocab_size - 1, 4, vocab_size - 1]
    assert id_dtype(vocab_size) == dtype
    document = row(0, ids, vocab_size=vocab_size)
    built = build(tmp_path, {"s-00000": [document]}, PackConfig(method, 16), vocab_size=vocab_size)
    (record,) = built.records(SHARD, dtype).tolist()
    end = [PAD] * 13 if method == "concat" else [*[PAD] * 12, BOS]
    assert record == [BOS, *ids, *end]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33])
def test_no_chunk_is_empty(length):
    layout = concat(np.array([length - 1]), 16)
    assert layout.chunks == max(1, -(-(length - 1) // 16))
    assert layout.padding(16) == layout.chunks * 16 + 1 - length


def counts(built: Built) -> tuple[int, int, int]:
    report = built.shards[SHARD].report
    return report["chunks"], report["padding"], report["truncated"]


def test_padding_and_truncated_documents_are_counted(tmp_path):
    # chunks of 8; with their BOS the documents take 8, 9, 3, 3, 2 and 20 ids
    documents = [row(i, [9] * n) for i, n in enumerate([7, 8, 2, 2, 1, 19])]
    best = build(tmp_path / "best", {"s-00000": documents}, PackConfig("best_fit", 8))
    # 9 becomes 8 + 2, and 20 becomes 8 + 8 + 6; so 8, 8, 8, 8, 6 + 2, and 3 + 3 + 2 full as well
    assert counts(best) == (6, 0, 2)
    lengths = [[e["tokens"] + 1 for e in g] for _, g in chunks(best)]
    assert sorted(lengths) == [[3, 3, 2], [6, 2], [8], [8], [8], [8]]
    end = build(tmp_path / "end", {"s-00000": documents}, PackConfig("concat", 8))
    # 45 ids: 6 chunks of 8 and one id before them
    chunk_count, padding, truncated = counts(end)
    assert (chunk_count, padding) == (6, 4)
    spans = [(e["start"], e["start"] + e["tokens"]) for e in end.table(SHARD)]
    whole = [any(8 * i <= a and b <= 8 * i + 8 for i in range(6)) for a, b in spans]
    assert truncated == whole.count(False) >= 2  # those longer than a chunk at least


def chunks(built: Built):
    """The rows of the table, by chunk of 8."""
    return itertools.groupby(built.table(SHARD), lambda e: e["start"] // 8)


@pytest.mark.parametrize("method", METHODS)
def test_a_document_without_ids_is_a_bos(tmp_path, method):
    built = build(tmp_path, {"s-00000": [row(0, [])]}, PackConfig(method, 4))
    assert built.records(SHARD).tolist() == [[BOS, *[PAD] * 3, PAD if method == "concat" else BOS]]
    (entry,) = built.table(SHARD)
    assert (entry["start"], entry["tokens"]) == (0, 0)
