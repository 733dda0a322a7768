"""The whole build: true counts, the same bytes from any workers, no more work than needed."""

import dataclasses
import fcntl
import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from data_tools.build import Build
from data_tools.decontaminate.config import DecontaminateConfig, EvaluationConfig
from data_tools.dedup.exact import ExactConfig
from data_tools.document import DataError
from data_tools.pack.verify import verify
from data_tools.recipe import Recipe, RuleConfig, TokenizerConfig
from data_tools.stage import Commit
from data_tools.tokenizer.sample import SAMPLE
from jaxlm.data import manifest
from jaxlm.data.documents import TABLE, Documents, table_path
from jaxlm.data.manifest import Manifest
from jaxlm.data.tokenizer import open_tokenizer
from tests.data_tools import raw, small

SMALL = TokenizerConfig(
    vocab_size=360, sample_bytes=1 << 20, control_symbols=("<user>",), reserved=2
)


def load(workdir: Path) -> Manifest:
    return manifest.load(workdir / "manifest.json")


def texts(workdir: Path) -> dict[str, list[str]]:
    """Split -> texts of its documents, decoded from the shards."""
    corpus = load(workdir)
    tokenizer = open_tokenizer(workdir / corpus.tokenizer)
    found: dict[str, list[str]] = {"train": [], "heldout": []}
    for shard in corpus.shards:
        reader = ArrayRecordReader(str(workdir / shard.path))
        records = [np.frombuffer(r, "<u2") for r in reader.read_all()]
        stream = np.concatenate([records[0][:1], *(r[1:] for r in records)])
        stream = stream[stream != corpus.pad_id]
        starts = np.flatnonzero(stream == corpus.bos_id)
        assert starts[0] == 0
        for part in np.split(stream, starts[1:]):
            found[shard.split].append(tokenizer.decode(part[1:].tolist()))
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Build]:
    workdir = tmp_path_factory.mktemp("built")
    small.write_raw(workdir)
    (workdir / "raw/zh/9.jsonl").write_text(
        json.dumps({"text": small.chinese(0)})  # a copy
        + "\n"
        + json.dumps({"text": small.chinese(1).replace("\n", "\r\n")})  # one after the repair
        + "\n"
        + json.dumps({"text": "short"})
        + "\n"
        + json.dumps({"text": "a mark \u2581 that the tokenizer takes for a space " * 5})
        + "\n{broken\n"
    )
    return workdir, small.run(small.recipe(), workdir)


def test_every_text_comes_back_once(built):
    workdir, _ = built
    found = texts(workdir)
    everything = [f(i) for i in range(60) for f in (small.chinese, small.english, small.code)]
    assert sorted(found["train"] + found["heldout"]) == sorted(everything)
    assert 5 < len(found["heldout"]) < 40


def test_the_manifest_counts_what_is_there(built):
    workdir, _ = built
    corpus = load(workdir)
    assert len(list(verify(workdir))) == len(corpus.shards) + 1
    assert {s.type for s in corpus.shards} == {"book", "web", "code"}
    for shard in corpus.shards:
        records = ArrayRecordReader(str(workdir / shard.path)).read_all()
        ids = np.stack([np.frombuffer(r, "<u2") for r in records])
        assert ids.shape == (shard.chunks, 33) and ids.max() < corpus.vocab_size
        weighed = (ids[:, 1:] != corpus.bos_id) & (ids[:, 1:] != corpus.pad_id)
        assert int(weighed.sum()) == shard.tokens
        table = pq.read_table((workdir / shard.path).with_name(TABLE))
        assert sum(table["tokens"].to_pylist()) == shard.tokens
    found = texts(workdir)
    for split in ("train", "heldout"):
        total = sum(s.text_bytes for s in corpus.shards if s.split == split)
        assert total == sum(len(t.encode()) for t in found[split])


def test_counts_of_what_was_dropped(built):
    counts = load(built[0]).counts
    assert counts["zh"]["bad"] == {"broken JSON": 1}
    assert counts["zh"]["dropped"] == {
        "min_length": 1,
        "exact_duplicate": 1,
        "near_duplicate": 1,
        "round_trip": 1,
    }
    assert counts["zh"]["documents"] == 64 and counts["zh"]["kept"] == 60
    for c in counts.values():
        assert c["documents"] == c["kept"] + sum(c["dropped"].values())
        assert c["kept"] == c["train"]["documents"] + c["heldout"]["documents"]
        assert c["tokens"] == c["train"]["tokens"] + c["heldout"]["tokens"]


def test_documents_are_found_by_id_and_by_span(built):
    workdir, _ = built
    corpus = load(workdir)
    documents = Documents(corpus, partial(table_path, workdir))
    for shard in corpus.shards:
        entries = documents.in_span(shard, 0, shard.chunks * 32 + 1)
        for entry in entries:
            assert documents.by_id(entry.id) == [entry]
            assert documents.in_span(shard, entry.start + 1, entry.start + 2) == [entry]
            line = (workdir / "raw" / entry.source / entry.path).read_bytes()[entry.offset :]
            assert len(line) > entry.tokens
    assert documents.by_id("00" * 16) == []


def test_nothing_runs_twice(built):
    workdir, first = built
    assert small.ran(first)["read"] == 5 + 4 + 60
    assert not any(small.ran(small.run(small.recipe(), workdir)).values())


def test_workers_and_partitions_change_no_byte(built, tmp_path):
    workdir, _ = built
    (tmp_path / "raw").symlink_to(workdir / "raw")
    recipe = dataclasses.replace(
        small.recipe(), workers=2, partition_bytes=1 << 20, exact=ExactConfig(buckets=3)
    )
    small.run(recipe, tmp_path)
    one, two = load(workdir), load(tmp_path)
    assert one.fingerprint() == two.fingerprint() and one.shards == two.shards
    assert (workdir / "tokenizer.model").read_bytes() == (tmp_path / "tokenizer.model").read_bytes()
    assert [s.sha256 for s in one.shards] == [s.sha256 for s in two.shards]
    said = [
        json.loads((w / "report.json").read_text(encoding="utf-8")) for w in (workdir, tmp_path)
    ]
    for what in ("sources", "funnels", "samples", "histograms", "privacy"):
        assert said[0][what] == said[1][what]


# ---- what runs again -----------------------------------------------------------------------------


@pytest.fixture
def workdir(tmp_path) -> Path:
    small.write_raw(tmp_path, files=2, texts=10)
    small.run(recipe(), tmp_path)
    return tmp_path


def recipe(**fields: object) -> Recipe:
    values = {"tokenizer": SMALL, "partition_bytes": 1 << 20} | fields
    return dataclasses.replace(small.recipe(), **values)


def rerun(workdir: Path, changed: Recipe) -> list[str]:
    work = small.run(changed, workdir)
    return [name for name, count in small.ran(work).items() if count]


def rules(characters: int, *types: str) -> tuple[RuleConfig, ...]:
    return (
        RuleConfig("unicode_repair"),
        RuleConfig("min_length", {"characters": characters}, types),
    )


def test_a_threshold_that_drops_nothing_new_runs_its_stage_alone(workdir):
    assert rerun(workdir, recipe(rules=rules(99))) == ["clean"]


def test_a_threshold_that_drops_documents_runs_what_follows(workdir):
    before = load(workdir)
    lengths = sorted(len("".join(small.english(i).split())) for i in range(20))
    after = rerun(workdir, recipe(rules=rules(lengths[10], "web")))
    assert after[:2] == ["clean", "privacy"] and {"near_index", "tokenize", "pack"} <= set(after)
    assert load(workdir).fingerprint() != before.fingerprint()
    rerun(workdir, recipe())
    assert load(workdir).fingerprint() == before.fingerprint()


def test_a_threshold_of_one_type_runs_that_type_alone(workdir):
    small.run(recipe(rules=rules(10, "web")), workdir)
    work = small.run(recipe(rules=rules(9, "web")), workdir)
    assert work.results["clean"].ran == ("en-00000",)
    assert not work.results["privacy"].ran


def test_a_tokenizer_sample_depends_on_its_own_type(tmp_path):
    small.write_raw(tmp_path, files=2, texts=10)
    scarce = dataclasses.replace(SMALL, sample_bytes=6_000)
    changed = recipe(tokenizer=scarce)
    small.run(changed, tmp_path, last="tokenizer")
    small.write_jsonl(tmp_path / "raw/zh/7.jsonl", [small.chinese(s) for s in range(900, 905)])
    work = small.run(changed, tmp_path, last="tokenizer")
    assert work.results[SAMPLE.name].ran == ("zh-00000",)


def test_a_changed_order_packs_again_and_reads_nothing(workdir):
    before = {s.path: s.sha256 for s in load(workdir).sources("train")["zh"]}
    pack = dataclasses.replace(small.recipe().pack, salt="other")
    assert rerun(workdir, recipe(pack=pack)) == ["shuffle", "pack"]
    after = {s.path: s.sha256 for s in load(workdir).sources("train")["zh"]}
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    assert small.run(recipe(pack=pack), workdir).results["pack"].ran == ()


def test_chunk_size_packs_again(workdir):
    pack = dataclasses.replace(small.recipe().pack, chunk_tokens=64, shard_bytes=20 * 128)
    assert rerun(workdir, recipe(pack=pack)) == ["pack"]


def test_another_vocabulary_tokenizes_again(workdir):
    tokenizer = dataclasses.replace(SMALL, vocab_size=370)
    ran = rerun(workdir, recipe(tokenizer=tokenizer))
    assert ran == ["tokenizer", "tokenize", "survey", "shuffle", "pack"]


def test_a_new_file_reads_only_itself_and_moves_no_document_out_of_heldout(tmp_path):
    small.write_raw(tmp_path, files=2, texts=10)
    small.run(small.recipe(), tmp_path)
    before = texts(tmp_path)
    small.write_jsonl(tmp_path / "raw/zh/7.jsonl", [small.chinese(s) for s in range(900, 905)])
    work = small.run(small.recipe(), tmp_path)
    assert work.results["read"].ran == ("zh-00002",)
    after = texts(tmp_path)
    assert set(before["heldout"]) <= set(after["heldout"])
    assert set(before["train"]) <= set(after["train"])
    assert len(after["train"]) + len(after["heldout"]) == 65


def test_a_removed_file_leaves_nothing_behind(tmp_path):
    small.write_raw(tmp_path, files=3, texts=6)
    small.run(small.recipe(), tmp_path)
    (tmp_path / "raw/zh/2.jsonl").unlink()
    work = small.run(small.recipe(), tmp_path)
    assert "zh-00002" not in {c.partition for c in work.results["clean"].commits}
    found = texts(tmp_path)
    kept = set(found["train"] + found["heldout"])
    assert small.chinese(0) in kept and small.chinese(12) not in kept
    assert not list(tmp_path.glob("stages/*/zh-00002"))
    whole = {p.parent.name for p in tmp_path.glob("shards/*/commit.json")}
    assert {Path(s.path).parent.name for s in load(tmp_path).shards} <= whole


def test_a_damaged_shard_is_made_again(workdir):
    before = load(workdir)
    path = workdir / before.shards[0].path
    path.write_bytes(path.read_bytes()[:-1])
    assert rerun(workdir, recipe()) == ["pack"]
    assert load(workdir) == before


def test_one_step_at_a_time(tmp_path):
    small.write_raw(tmp_path, files=1, texts=20)
    work = small.run(recipe(), tmp_path, last="exact")
    assert list(work.results) == ["read", "exact_keys", "exact_duplicates"]
    assert not (tmp_path / "manifest.json").exists()
    work = small.run(recipe(), tmp_path, last="pack")
    assert not work.results["read"].ran and work.results["pack"].ran
    assert (tmp_path / "manifest.json").exists() and not (tmp_path / "report.json").exists()


def test_an_old_manifest_does_not_outlive_its_shards(workdir, monkeypatch):
    def stop(*_: object) -> Commit:
        raise KeyboardInterrupt

    monkeypatch.setattr("data_tools.build.write_corpus", stop)
    pack = dataclasses.replace(small.recipe().pack, salt="other")
    with pytest.raises(KeyboardInterrupt):
        small.run(recipe(pack=pack), workdir)
    assert not (workdir / "manifest.json").exists()


# ---- what is refused -----------------------------------------------------------------------------


def test_a_source_of_bad_records_alone_is_an_error(tmp_path):
    bad = small.one_source(tmp_path, a__jsonl=b"{\n[1]\n", b__jsonl=b"")
    with pytest.raises(DataError) as e:
        small.run(bad, tmp_path)
    message = str(e.value)
    assert message.startswith("source raw: no document in the files of a.jsonl, b.jsonl below raw:")
    for part in ("broken JSON (1)", "not a JSON object (1)", "empty file (1)", "a.jsonl line 1"):
        assert part in message


def test_a_source_without_any_record_is_an_error(tmp_path):
    page = raw.wiki_page(1, "Talk", "about it", space=1)
    dump = small.one_source(tmp_path, "mediawiki", a__xml=(raw.HEAD + page + raw.TAIL).encode())
    with pytest.raises(DataError, match=r"no record that the format mediawiki takes for a docum"):
        small.run(dump, tmp_path)


def test_a_source_whose_documents_are_all_dropped_is_an_error(tmp_path):
    small.write_raw(tmp_path, files=1, texts=12)
    strict = RuleConfig("min_length", {"characters": 10_000}, ("web",))
    with pytest.raises(DataError, match=r"source en: all 12 documents were dropped: min_length"):
        small.run(recipe(rules=(strict,)), tmp_path)


def test_everything_held_out_is_an_error(tmp_path):
    small.write_raw(tmp_path, files=1, texts=12)
    small.run(recipe(), tmp_path, last="tokenize")
    held = dataclasses.replace(small.recipe().heldout, fraction=1 - 1e-9)
    with pytest.raises(
        DataError, match=r"no text is left .*config\.heldout\.fraction=0\.999999999,"
    ):
        small.run(recipe(heldout=held), tmp_path)


def test_nothing_left_to_train_on_is_an_error(tmp_path):
    text = json.dumps({"text": "too short"}).encode()
    with pytest.raises(DataError, match="no text is left to train the tokenizer on"):
        small.run(small.one_source(tmp_path, a__jsonl=text), tmp_path)


def test_a_second_build_in_the_directory_is_refused(tmp_path):
    small.write_raw(tmp_path, files=1, texts=1)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another build is running here; wait for it"):
            small.run(small.recipe(), tmp_path)


def test_heldout_text_does_not_reach_the_tokenizer(built):
    workdir, _ = built
    sampled = "".join(
        text
        for p in workdir.glob(f"stages/{SAMPLE.name}/*/sample.parquet")
        for text in pq.read_table(p)["text"].to_pylist()
    )
    found = texts(workdir)
    assert all(t not in sampled for t in found["heldout"])
    assert all(t in sampled for t in found["train"])


def test_evaluation_data_is_found_before_an_edit_can_hide_it(tmp_path):
    chinese = "這個問題的答案應該從歷史書裡尋找，因為當時的記載說得非常清楚。"
    english = "which of all the words in this question did mail@firm.com write in the year of flood"
    small.write_raw(tmp_path, files=1, texts=20)
    small.write_jsonl(tmp_path / "raw/en/9.jsonl", [chinese * 4, f"{small.english(99)} {english}."])
    small.write_jsonl(tmp_path / "exam.jsonl", [chinese, english])
    changed = recipe(
        rules=(RuleConfig("traditional_to_simplified"),),
        decontaminate=DecontaminateConfig((EvaluationConfig("exam", "exam.jsonl"),)),
    )
    work = small.run(changed, tmp_path, last="near")
    dropped = [c.report["dropped"] for c in work.results["clean"].commits]
    assert {"contaminated": 2} in dropped
