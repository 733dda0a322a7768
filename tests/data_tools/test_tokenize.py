"""Tokenized documents: ids as the tokenizer gives them, and only texts that come back."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_tools import tokenize
from data_tools.document import Document, table_writer
from data_tools.drops import Drops
from data_tools.stage import Input, Partition
from data_tools.tokenize import SCHEMA, TOKENS, Encoder, tokenize_partition
from data_tools.tokenizer.train import train_model
from jaxlm.data.tokenizer import Spelling, open_tokenizer
from tests.data_tools import small

TEXTS = [f(i) for i in range(40) for f in (small.chinese, small.english, small.code)]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    path.write_bytes(train_model(small.recipe().tokenizer, iter(TEXTS)))
    return path


def documents(texts: Sequence[str]) -> list[Document]:
    return [Document.make(t, "s", "web", "f", i, {}) for i, t in enumerate(texts)]


def run(
    root: Path, model: Path, found: Sequence[Document], representatives: Sequence[bytes] = ()
) -> tuple[dict, list[dict]]:
    """The report and the rows of the table."""
    with table_writer(root / "in") as write:
        for d in found:
            write(d)
    ids = pa.array(representatives, pa.binary(16))
    pq.write_table(pa.table({"id": ids}), root / "representatives")
    out = root / "out"
    out.mkdir()
    inputs = {
        "documents": (Input(root / "in", "p", ""),),
        "verdicts": (),
        "representatives": (Input(root / "representatives", "p", ""),),
        "tokenizer": (Input(model, "tokenizer", open_tokenizer(model).hash()),),
    }
    report = tokenize_partition(Partition("p", (), inputs), out)
    table = pq.read_table(out / TOKENS)
    assert table.schema == SCHEMA
    return report, table.to_pylist()


def test_ids_are_the_tokenizers(tmp_path, model):
    report, rows = run(tmp_path, model, documents(TEXTS[:5]))
    tokenizer = open_tokenizer(model)
    for text, row in zip(TEXTS, rows, strict=False):
        ids = np.frombuffer(row["ids"], "<u2").tolist()
        assert ids == list(tokenizer.encode(text)) and row["tokens"] == len(ids)
        assert row["text_bytes"] == len(text.encode())
        assert tokenizer.bos_id not in ids
    assert report["documents"] == 5 and report["tokens"] == sum(r["tokens"] for r in rows)


def test_a_text_that_would_not_come_back_is_dropped_loudly(tmp_path, model):
    texts = ["fine", "a\u2581b", "also fine", "end \u2581"]
    report, rows = run(tmp_path, model, documents(texts))
    assert [r["offset"] for r in rows] == [0, 2]
    tokenizer = open_tokenizer(model)
    assert [tokenizer.decode(np.frombuffer(r["ids"], "<u2").tolist()) for r in rows] == texts[::2]
    assert report["dropped"] == {"round_trip": 2}
    dropped = pq.read_table(tmp_path / "out/dropped.parquet").to_pylist()
    assert [(d["offset"], d["detail"]) for d in dropped] == [
        (1, "the tokenizer does not give back U+2581 at character 1"),
        (3, "the tokenizer does not give back U+2581 at character 4"),
    ]


def test_hostile_texts_come_back(tmp_path, model):
    texts = ["\x00" * 50, "\r\n\t \u3000" * 9, "🙂𠮷" * 99, "<bos><pad>", "x" * 300_000, "", "a"]
    report, rows = run(tmp_path, model, documents(texts))
    assert len(rows) == 7 and not report["dropped"]
    assert [r["text_bytes"] for r in rows] == [len(t.encode()) for t in texts]


@pytest.mark.parametrize("characters", [1, 100, 1000])
def test_how_many_are_encoded_at_a_time_changes_nothing(tmp_path, model, monkeypatch, characters):
    found = documents([*TEXTS[:20], "a\u2581b", *TEXTS[20:40]])
    (tmp_path / "whole").mkdir()
    whole = run(tmp_path / "whole", model, found)
    monkeypatch.setattr(tokenize, "BATCH_CHARACTERS", characters)
    (tmp_path / "parts").mkdir()
    assert run(tmp_path / "parts", model, found) == whole
    assert pq.ParquetFile(tmp_path / "parts/out" / TOKENS).num_row_groups > 5


def test_nothing_stays_of_nothing(tmp_path, model):
    report, rows = run(tmp_path, model, [])
    assert rows == [] and report["tokens"] == report["documents"] == 0


def test_faults_and_clusters_are_kept(tmp_path, model):
    found = documents(["one text", "two texts", "three"])
    found[1] = replace(found[1], quality=0.25, meta={"faults": "word_count url_ratio", "u": "x"})
    _, rows = run(tmp_path, model, found, representatives=[found[0].id])
    assert [r["faults"] for r in rows] == [[], ["word_count", "url_ratio"], []]
    assert [r["quality"] for r in rows] == [1, 0.25, 1]
    assert [r["cluster"] for r in rows] == [found[0].id, None, None]


def test_text_that_moves_from_one_document_to_the_next_is_noticed(tmp_path, model):
    """The pieces of a batch are compared as one string; its documents must not."""
    tokenizer = open_tokenizer(model)
    texts = ["alpha beta", "gamma"]
    shifted = tokenizer.encode_batch(["alpha bet", "agamma"])
    tokenizer.encode_batch = lambda texts: shifted  # a tokenizer with a fault
    with Drops(tmp_path) as drops:
        encoded = Encoder(tokenizer).encode(documents(texts), drops)
    assert encoded.documents == [] and len(encoded.ids) == 0
    assert drops.report()["dropped"] == {"round_trip": 2}


def test_a_tokenizer_without_spelling_is_checked_by_decoding(tmp_path, model):
    tokenizer = open_tokenizer(model)
    assert isinstance(tokenizer.spelling(), Spelling)
    with Drops(tmp_path) as drops:
        spelled = Encoder(tokenizer).encode(documents([*TEXTS[:4], "\u2581"]), drops)
    tokenizer.spelling = lambda: None
    with Drops(tmp_path) as drops:
        decoded = Encoder(tokenizer).encode(documents([*TEXTS[:4], "\u2581"]), drops)
    assert [d.text for d in decoded.documents] == TEXTS[:4]
    assert decoded.ids.tolist() == spelled.ids.tolist()
    assert drops.report()["dropped"] == {"round_trip": 1}
