"""Tokenized documents: ids as the tokenizer gives them, and only texts that come back."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_tools.document import Document, table_writer
from data_tools.stage import Input, Partition
from data_tools.tokenize import tokenize_partition
from jaxlm.data.tokenizer import Tokenizer
from tests.data_tools import small
from tests.data_tools.test_tokenizer import TEXTS, train


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    config = small.recipe().tokenizer
    return train(tmp_path_factory.mktemp("model"), TEXTS, config)


def tokenize(root: Path, model: Path, texts: list[str]) -> tuple[dict, list[dict]]:
    documents = [Document.make(t, "s", "web", "f", i, {}) for i, t in enumerate(texts)]
    with table_writer(root / "in") as write:
        for d in documents:
            write(d)
    out = root / "out"
    out.mkdir()
    inputs = {
        "documents": (Input(root / "in", "p", ""),),
        "verdicts": (),
        "relatives": (),
        "tokenizer": (Input(model, "tokenizer", Tokenizer(model).hash()),),
    }
    report = tokenize_partition(Partition("p", (), inputs), out)
    return report, pq.read_table(out / "tokens.parquet").to_pylist()


def test_ids_are_the_tokenizers(tmp_path, model):
    report, rows = tokenize(tmp_path, model, TEXTS[:5])
    tokenizer = Tokenizer(model)
    for text, row in zip(TEXTS, rows, strict=False):
        ids = np.frombuffer(row["ids"], "<u2").tolist()
        assert ids == tokenizer.encode(text) and row["tokens"] == len(ids)
        assert row["text_bytes"] == len(text.encode())
        assert tokenizer.bos_id not in ids
    assert report["documents"] == 5 and report["tokens"] == sum(r["tokens"] for r in rows)


def test_a_text_that_would_not_come_back_is_dropped_loudly(tmp_path, model):
    report, rows = tokenize(tmp_path, model, ["fine", "a\u2581b", "end \u2581"])
    assert [r["offset"] for r in rows] == [0]
    assert report["dropped"] == {"round_trip": 2}
    dropped = pq.read_table(tmp_path / "out/dropped.parquet").to_pylist()
    assert [(d["offset"], d["detail"]) for d in dropped] == [
        (1, "the tokenizer does not give back U+2581 at character 1"),
        (2, "the tokenizer does not give back U+2581 at character 4"),
    ]


def test_hostile_texts_come_back(tmp_path, model):
    texts = ["\x00" * 50, "\r\n\t \u3000" * 9, "🙂𠮷" * 99, "<bos><pad>", "x" * 300_000]
    report, rows = tokenize(tmp_path, model, texts)
    assert len(rows) == 5 and not report["dropped"]
