"""What people may see of what was dropped."""

import json

import pyarrow.parquet as pq
import pytest

from data_tools.document import Document, Drop
from data_tools.dropped import SHOWN_CHARACTERS, dropped_partition
from data_tools.drops import TABLE, Drops
from data_tools.privacy.config import PrivacyConfig
from data_tools.samples import SAMPLE_CHARACTERS, SAMPLES
from data_tools.stage import Input, Partition


def dropped(tmp_path, texts: list[str], detail: str = "why") -> tuple[list[dict], list[dict]]:
    """(Rows, samples) of documents with these texts."""
    with Drops(tmp_path) as drops:
        for n, text in enumerate(texts):
            drops.add(Document.make(text, "s", "web", "f", n, {}), Drop("rule", detail))
    out = tmp_path / "out"
    out.mkdir()
    inputs = {"dropped": (Input(tmp_path / TABLE, "s-00000", ""),), "ner": ()}
    dropped_partition(Partition("s-00000", PrivacyConfig(), inputs), out)
    samples = json.loads((out / "samples.json").read_text(encoding="utf-8"))
    return pq.read_table(out / TABLE).to_pylist(), samples


@pytest.mark.parametrize("secret", ["zhangsan@163.com", "13800138000", "微信号zhangsan123"])
def test_no_part_of_what_is_masked_shows_at_a_cut(tmp_path, secret):
    for place in range(len(secret)):
        directory = tmp_path / str(place)
        directory.mkdir()
        cuts = (SHOWN_CHARACTERS, SAMPLE_CHARACTERS)
        texts = ["。" * (cut - place) + secret + "。" * 900 for cut in cuts]
        rows, samples = dropped(directory, texts)
        for shown in (*(r["excerpt"] for r in rows), *(s["excerpt"] for s in samples)):
            assert not set(shown) & set("zhangsan3800")
        assert {len(r["excerpt"]) for r in rows} == {SHOWN_CHARACTERS}


def test_details_are_masked(tmp_path):
    (row,), (sample,) = dropped(tmp_path, ["text"], "has 13800138000 in it")
    assert row["detail"] == sample["detail"] == "has 1********** in it"


def test_every_document_is_there_and_a_few_are_samples(tmp_path):
    rows, samples = dropped(tmp_path, [f"text {n}" for n in range(30)])
    assert [r["excerpt"] for r in rows] == [f"text {n}" for n in range(30)]
    assert [s["id"] for s in samples] == sorted(r["id"].hex() for r in rows)[:SAMPLES]


def test_nothing_dropped_writes_nothing(tmp_path):
    assert dropped_partition(Partition("s", PrivacyConfig(), {"dropped": ()}), tmp_path) == {}
    assert not list(tmp_path.iterdir())
