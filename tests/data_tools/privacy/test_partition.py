"""The privacy stage, as a build runs it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_tools import engines
from data_tools.document import DataError, Document, read_tables, table_writer
from data_tools.dropped import DROPPED
from data_tools.privacy import scrub
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.partition import PRIVACY, inputs
from data_tools.stage import Commit, Input, Partition, run_stage

MOBILE, CODE = "13800138000", "91110000100017643K"


def run(workdir: Path, config: PrivacyConfig, texts: list[str], type: str = "web") -> Commit:
    """The stage over one partition of these texts."""
    workdir.mkdir(exist_ok=True)
    with table_writer(workdir / "in.parquet") as write:
        for n, text in enumerate(texts):
            write(Document.make(text, "s", type, "a.txt", n, {"url": "u"}))
    documents = Input(workdir / "in.parquet", "s-00000", str(texts))
    policies = config.of(type)
    partition = Partition("s-00000", policies, {"documents": (documents,), **inputs(policies)})
    engine = engines.local(1)
    try:
        result = run_stage(PRIVACY, [partition], workdir / "privacy", engine)
    finally:
        engine.close()
    return result.commits[0]


def documents(commit: Commit) -> list[Document]:
    return list(read_tables([commit.directory / "documents.parquet"]))


def test_documents_are_scrubbed_tagged_and_dropped(tmp_path):
    config = PrivacyConfig(passport="drop")
    texts = [f"电话{MOBILE}", f"代码{CODE} {CODE}", "护照E12345678", "没有什么"]
    commit = run(tmp_path, config, texts)
    first, second, third = documents(commit)
    assert first.text == "电话1**********"
    assert first.content_hash == Document.make(first.text, "s", "web", "a", 0, {}).content_hash
    assert second.text == texts[1] and second.meta == {"url": "u", "private": "uscc=2"}
    assert third.text == "没有什么" and third.meta == {"url": "u"}
    (dropped,) = pq.read_table(commit.directory / "dropped.parquet").to_pylist()
    assert dropped["rule"] == "privacy"
    assert dropped["detail"] == "1 of passport; the policy is to drop the document"
    report = commit.report
    assert report["documents"] == 3 and report["dropped"] == {"privacy": 1}
    assert report["text_bytes"] == sum(len(d.text.encode()) for d in (first, second, third))
    assert report["entities"] == {"uscc": {"tag": 2}, "mobile": {"mask": 1}}
    assert report["ner"] == "none"


def test_what_masks_for_people_follows_what_masks_the_corpus():
    assert all(scrub.VERSION in stage.version for stage in (PRIVACY, DROPPED))


def test_nothing_dropped_writes_no_table(tmp_path):
    assert set(run(tmp_path, PrivacyConfig(), ["一二三"]).outputs) == {"documents.parquet"}


def test_samples_are_few_and_masked_and_those_with_the_smallest_ids(tmp_path):
    texts = [f"第{n}篇，代码{CODE}，电话{MOBILE}" + "。" * 500 for n in range(30)]
    commit = run(tmp_path, PrivacyConfig(), texts)
    samples = commit.report["samples"]
    assert [s["id"] for s in samples] == sorted(d.id.hex() for d in documents(commit))[:6]
    for sample in samples:
        assert CODE not in sample["excerpt"] and len(sample["excerpt"]) == 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"。。。电话{MOBILE}", "电话1******"),
        ("邮箱 zhangsan@163.com", "邮箱 *******"),
        ("微信号 zhangsan123", "微信号 ******"),
    ],
)
def test_a_sample_does_not_cut_through_what_is_masked(tmp_path, text, shown):
    text = "。" * (390 if MOBILE not in text else 388) + text
    (sample,) = run(tmp_path, PrivacyConfig(), [text]).report["samples"]
    assert sample["excerpt"].lstrip("。") == shown and len(sample["excerpt"]) == 400


class TestKey:
    def test_is_in_nothing_that_is_written(self, tmp_path):
        key = b"0123456789abcdef-secret"
        (tmp_path / "key").write_bytes(key)
        config = PrivacyConfig(mobile="hash", key_file=str(tmp_path / "key"))
        commit = run(tmp_path / "work", config, [f"电话{MOBILE}"])
        assert documents(commit)[0].text.startswith("电话<mobile:")
        for path in (tmp_path / "work").rglob("*"):
            assert path.is_dir() or (key not in path.read_bytes())
            assert path.is_dir() or (key.hex().encode() not in path.read_bytes())

    def test_another_one_runs_the_stage_again(self, tmp_path):
        config = PrivacyConfig(mobile="hash", key_file=str(tmp_path / "key"))
        texts = []
        for key in (b"a" * 16, b"a" * 16, b"b" * 16):
            (tmp_path / "key").write_bytes(key)
            commit = run(tmp_path / "work", config, [f"电话{MOBILE}"])
            data = json.loads((commit.directory / "commit.json").read_text())
            texts.append((data["fingerprint"], documents(commit)[0].text))
        assert texts[0] == texts[1] != texts[2]

    def test_a_type_that_hashes_nothing_does_not_depend_on_it(self, tmp_path):
        config = PrivacyConfig(mobile="hash", key_file=str(tmp_path / "none"), ner="jiagu")
        found = inputs(config.of("code"))
        assert found == {"key": (), "ner": ()}

    def test_a_short_one_is_refused(self, tmp_path):
        (tmp_path / "key").write_bytes(b"short")
        config = PrivacyConfig(mobile="hash", key_file=str(tmp_path / "key"))
        with pytest.raises(DataError, match="has 5 bytes, at least 16 are needed; make one: head"):
            inputs(config)

    def test_a_missing_one_is_an_error_at_the_start(self, tmp_path):
        config = PrivacyConfig(mobile="hash", key_file=str(tmp_path / "key"))
        with pytest.raises(DataError, match="key': No such file or directory; make one: head"):
            inputs(config)


def test_the_model_is_part_of_the_fingerprint(tmp_path):
    texts = ["他的老师是李建国。"]
    without = run(tmp_path, PrivacyConfig(), texts)
    commit = run(tmp_path, PrivacyConfig(ner="jiagu"), texts)
    assert documents(commit)[0].text == "他的老师是***。"
    assert without.report["ner"] == "none" and commit.report["ner"] == "jiagu"
    assert commit.report["entities"] == {"person": {"mask": 1}}
