"""Which documents go where: excluded, held out, a bucket, a shard; and what runs again."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from data_tools.heldout import HeldoutConfig
from data_tools.pack.config import BucketConfig, ExcludeConfig, PackConfig
from data_tools.pack.shuffle import SHUFFLED, read_shuffled
from jaxlm.data.documents import order_key
from tests.data_tools.pack.material import Built, build, rows, write_tokens

PACK = PackConfig(chunk_tokens=16)
HELD = HeldoutConfig(0.2)


def of_split(built: Built, split: str, source: str = "") -> set[bytes]:
    """Ids of the documents in the shards."""
    return {
        e["id"]
        for name, commit in built.shards.items()
        if commit.report["split"] == split and source in ("", commit.report["source"])
        for e in built.table(name)
    }


def test_shards_are_ranges_of_keys_and_held_out_is_what_the_text_says(tmp_path):
    documents = rows(400)
    built = build(tmp_path, {"s-00000": documents}, replace(PACK, shard_bytes=4500), heldout=0.2)
    assert list(built.shards) == [
        *(f"s.train-{k:05d}-of-00003" for k in range(3)),
        "s.heldout-00000-of-00001",
    ]
    held = {r["id"] for r in documents if HELD.holds(r["read_hash"], r["type"])}
    assert of_split(built, "heldout") == held
    assert of_split(built, "train") == {r["id"] for r in documents} - held
    keys = [[e["key"] for e in built.table(f"s.train-{k:05d}-of-00003")] for k in range(3)]
    assert max(keys[0]) < min(keys[1]) and max(keys[1]) < min(keys[2])
    assert all(k == sorted(k) for k in keys)


def test_shards_have_about_the_size_asked_for(tmp_path):
    documents = rows(600)
    built = build(tmp_path, {"s-00000": documents}, replace(PACK, shard_bytes=5000))
    sizes = [2 * 16 * c.report["chunks"] for c in built.shards.values()]
    assert len(sizes) == 5 and all(3500 < size < 6500 for size in sizes)
    assert sum(c.report["documents"] for c in built.shards.values()) == 600


def test_nothing_held_out_has_no_shard(tmp_path):
    assert list(build(tmp_path, {"s-00000": rows(9)}).shards) == ["s.train-00000-of-00001"]


def test_no_documents_no_shards(tmp_path):
    built = build(tmp_path, {"s-00000": [], "t-00000": rows(5, "t")})
    assert list(built.shards) == ["t.train-00000-of-00001"]


def test_a_document_keeps_its_cluster(tmp_path):
    documents = rows(30)
    documents[7]["cluster"] = documents[7]["id"]
    built = build(tmp_path, {"s-00000": documents})
    clusters = {e["id"]: e["cluster"] for e in built.table("s.train-00000-of-00001")}
    assert clusters == {d["id"]: d["cluster"] for d in documents}


def test_another_order_holds_out_the_same_documents(tmp_path):
    one = build(tmp_path / "a", {"s-00000": rows(200)}, PACK, heldout=0.2)
    two = build(tmp_path / "b", {"s-00000": rows(200)}, replace(PACK, salt="two"), heldout=0.2)
    assert of_split(one, "heldout") == of_split(two, "heldout")
    assert one.files() != two.files()


# ---- buckets -------------------------------------------------------------------------------------


def test_buckets_are_sources_of_their_own_and_held_out_text_has_none(tmp_path):
    documents = rows(300)
    parts = {"s-00000": documents, "t-00000": rows(20, "t")}
    buckets = (BucketConfig(("web",), (0.3, 0.9), (0.0, 1.0, 4.0)),)
    built = build(tmp_path / "a", parts, replace(PACK, buckets=buckets), heldout=0.2)
    assert {c.report["source"] for c in built.shards.values()} == {"s", "s.q0", "s.q1", "s.q2", "t"}
    for i, (low, high) in enumerate([(0, 0.3), (0.3, 0.9), (0.9, 1.1)]):
        wanted = {r["id"] for r in documents if low <= r["quality"] < high}
        found = of_split(built, "train", f"s.q{i}")
        assert found == wanted - of_split(built, "heldout") and found
        commit = built.shards[f"s.q{i}.train-00000-of-00001"]
        assert commit.report["origin"] == "s"
        assert {e["source"] for e in built.table(commit.partition)} == {"s"}
    assert not of_split(built, "train", "s")
    plain = build(tmp_path / "b", parts, PACK, heldout=0.2)
    name = "s.heldout-00000-of-00001"
    assert built.files()[f"{name}/documents.parquet"] == plain.files()[f"{name}/documents.parquet"]
    assert (built.records(name) == plain.records(name)).all()


def test_a_document_at_an_edge_is_in_the_bucket_above(tmp_path):
    documents = [r | {"quality": q} for r, q in zip(rows(3), (0.4999, 0.5, 1.0), strict=True)]
    buckets = (BucketConfig((), (0.5, 1.0), (1.0, 1.0, 1.0)),)
    built = build(tmp_path, {"s-00000": documents}, replace(PACK, buckets=buckets))
    found = [of_split(built, "train", f"s.q{i}") for i in range(3)]
    assert found == [{d["id"]} for d in documents]


def test_the_first_buckets_that_apply_to_a_type_count(tmp_path):
    buckets = (BucketConfig(("book",)), BucketConfig((), (0.1, 0.2), (1.0, 1.0, 1.0)))
    parts = {"s-00000": rows(90), "t-00000": rows(90, "t")}
    built = build(tmp_path, parts, replace(PACK, buckets=buckets))
    sources = {c.report["source"] for c in built.shards.values()}
    assert sources == {"s.q0", "s.q1", "s.q2", "t.q0", "t.q1"}


# ---- exclusion -----------------------------------------------------------------------------------

EXCLUDE = (ExcludeConfig(("web",), ("mean_line_length",)), ExcludeConfig((), below=0.25))


def test_excluded_documents_are_in_no_split_and_named_with_the_reason(tmp_path):
    documents, others = rows(120), rows(40, "t")
    parts = {"s-00000": documents, "t-00000": others}
    built = build(tmp_path, parts, replace(PACK, exclude=EXCLUDE), heldout=0.2)
    faulty = {r["id"]: "exclude: mean_line_length" for r in documents if r["faults"]}
    low = {r["id"]: "exclude: quality" for r in [*documents, *others] if r["quality"] < 0.25}
    expected = low | faulty
    found: dict[bytes, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for commit in built.results["shuffle"].commits:
        for verdict in pq.read_table(commit.directory / "excluded.parquet").to_pylist():
            found[verdict["id"]] = verdict["rule"]
            low_quality = f"below {0.25}" in verdict["detail"]
            assert low_quality == (verdict["rule"] == "exclude: quality")
        for reason, count in commit.report["excluded"].items():
            have = counts.setdefault(reason, {"documents": 0, "text_bytes": 0, "tokens": 0})
            counts[reason] = {key: have[key] + value for key, value in count.items()}
    assert found == expected
    everything = {r["id"]: r for r in [*documents, *others]}
    for reason, count in counts.items():
        gone = [everything[id] for id, why in expected.items() if why == reason]
        assert count["documents"] == len(gone)
        assert count["tokens"] == sum(r["tokens"] for r in gone) == count["text_bytes"] // 2
    stay = everything.keys() - expected.keys()
    assert of_split(built, "train") | of_split(built, "heldout") == stay
    held = {i for i in stay if HELD.holds(everything[i]["read_hash"], "web")}
    assert of_split(built, "heldout") == held


def test_no_exclusion_writes_no_table(tmp_path):
    built = build(tmp_path, {"s-00000": rows(9)})
    (commit,) = built.results["shuffle"].commits
    assert set(commit.outputs) == {SHUFFLED} and commit.report["excluded"] == {}


def test_an_exclusion_packs_again_only_what_it_changes(tmp_path):
    parts = {"s-00000": rows(200), "s-00001": rows(3), "t-00000": rows(100, "t")}
    pack = replace(PACK, shard_bytes=2000)
    first = build(tmp_path, parts, pack)
    first_ids = {name: {e["id"] for e in first.table(name)} for name in first.shards}
    # one document of s-00000, by a fault that no other has
    victim = parts["s-00000"][5]
    victim["faults"] = ["word_count"]
    write_tokens(tmp_path, parts)
    assert build(tmp_path, parts, pack).results["pack"].ran == ()
    exclude = (ExcludeConfig(("web",), ("word_count",)),)
    again = build(tmp_path, parts, replace(pack, exclude=exclude))
    assert set(again.results["shuffle"].ran) == {"s-00000", "s-00001"}
    (ran,) = again.results["pack"].ran
    assert victim["id"] in first_ids[ran]
    assert victim["id"] not in {e["id"] for e in again.table(ran)}
    whole = build(tmp_path / "whole", parts, replace(pack, exclude=exclude))
    assert again.files() == whole.files()


# ---- shuffled files ------------------------------------------------------------------------------


def test_a_shuffled_file_has_a_batch_for_each_shard(tmp_path):
    documents = rows(200)
    built = build(tmp_path, {"s-00000": documents}, replace(PACK, shard_bytes=1000), heldout=0.1)
    (commit,) = built.results["shuffle"].commits
    assert list(commit.report["shards"]) == list(built.shards)
    found = []
    for name in built.shards:
        batch = read_shuffled(commit.directory / SHUFFLED, name)
        keys = batch["key"].to_pylist()
        assert keys == sorted(keys) == [order_key(id, "order") for id in batch["id"].to_pylist()]
        assert batch["id"].to_pylist() == [e["id"] for e in built.table(name)]
        found += batch["ids"].to_pylist()
    assert sorted(found) == sorted(r["ids"] for r in documents)


@pytest.mark.parametrize("change", ["quality", "ids", "path", "cluster"])
def test_the_hash_of_a_shard_follows_its_rows_and_no_others(tmp_path, change):
    documents = rows(200)
    pack = replace(PACK, shard_bytes=1000)
    before = build(tmp_path, {"s-00000": documents}, pack).results["shuffle"].commits[0]
    victim = documents[17]
    values = {"quality": 0.123, "ids": victim["ids"][::-1], "path": "g", "cluster": victim["id"]}
    victim[change] = values[change]
    after = build(tmp_path, {"s-00000": documents}, pack)
    (commit,) = after.results["shuffle"].commits
    changed = {k for k, v in commit.report["shards"].items() if before.report["shards"][k] != v}
    (name,) = changed
    assert victim["id"] in {e["id"] for e in after.table(name)}
    assert set(after.results["pack"].ran) == changed
