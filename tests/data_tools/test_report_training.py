"""The report on what training reads: held-out text, tokenizer, shards and mixture add up."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
from data_tools.mixture import MixtureConfig, MixtureStageConfig
from data_tools.pack.config import BucketConfig, ExcludeConfig, PackConfig
from data_tools.pack.verify import verify
from data_tools.recipe import Recipe, RuleConfig
from data_tools.report import lines
from data_tools.report.page import page as page_of
from jaxlm.data import manifest
from tests.data_tools import eventful, small

RULES = (
    RuleConfig("unicode_repair"),
    RuleConfig("min_length", {"characters": 260}, ("web",), 1.0),
    RuleConfig("word_count", {"least": 50}, ("web",), 1.0),
    RuleConfig("digit_ratio", {}, ("web",), 1.0),
    RuleConfig("min_length", {"characters": 165}, ("code",), 1.0),
)
"""Long pages are of quality 1 or 2/3, short ones of 1/3; functions of 1 or 0."""


def recipe(workdir: Path) -> Recipe:
    """Quality buckets, exclusions, two stages, and shares of their own for two types."""
    small.write_raw(workdir, files=2, texts=30)
    short = [small.english(900 + n, 40) for n in range(20)]
    small.write_jsonl(workdir / "raw/en/short.jsonl", short)
    stages = [
        MixtureStageConfig((("web", 3.0), ("book", 3.0), ("code", code)), until)
        for code, until in ((4.0, 0.5), (6.0, 1.0))
    ]
    return replace(
        small.recipe(rules=RULES),
        heldout=HeldoutConfig(0.1, types=(("code", 0.3), ("book", 0.0))),
        pack=PackConfig(
            method="best_fit",
            chunk_tokens=64,
            shard_bytes=3_000,
            buckets=(BucketConfig(("web",), (0.5, 0.9), (0.5, 1.0, 2.0)),),
            exclude=(
                ExcludeConfig(("web",), rules=("word_count",)),
                ExcludeConfig(("code",), below=0.5),
            ),
        ),
        partition_bytes=10_000,
        mixture=MixtureConfig(tuple(stages), tokens=60_000, max_epochs=6, tolerance=0.5),
    )


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("training")
    small.run(recipe(workdir), workdir)
    return workdir


@pytest.fixture(scope="module")
def report(workdir) -> dict:
    return eventful.report(workdir)


@pytest.fixture(scope="module")
def shards(workdir) -> tuple[manifest.Shard, ...]:
    return manifest.load(workdir / "manifest.json").shards


def test_what_is_kept_is_trained_on_held_out_or_excluded(report):
    excluded = {name: sorted(c["excluded"]) for name, c in report["sources"].items()}
    assert excluded == {"zh": [], "en": ["exclude: word_count"], "py": ["exclude: quality"]}
    assert report["sources"]["en"]["excluded"]["exclude: word_count"]["documents"] == 20
    for c in report["sources"].values():
        for kept, key in (("kept", "documents"), ("tokens", "tokens")):
            left_out = sum(lost[key] for lost in c["excluded"].values())
            assert c[kept] == c["train"][key] + c["heldout"][key] + left_out


def test_parts_are_those_of_the_manifest(report, shards):
    parts = report["packing"]["parts"]
    assert [(p["source"], p["split"]) for p in parts] == list(
        dict.fromkeys((s.source, s.split) for s in shards)
    )
    for part in parts:
        here = [s for s in shards if (s.source, s.split) == (part["source"], part["split"])]
        assert part["shards"] == len(here)
        for key in ("documents", "chunks", "tokens", "text_bytes", "file_bytes"):
            assert part[key] == sum(getattr(s, key) for s in here)
        sizes = [s.file_bytes for s in here]
        assert (part["smallest_shard"], part["largest_shard"]) == (min(sizes), max(sizes))
    assert max(part["shards"] for part in parts) > 1


def test_buckets_sum_up_under_their_source(report):
    packing, counts = report["packing"], report["sources"]["en"]
    found = [(b["source"], b["from"], b["to"], b["weight"]) for b in packing["buckets"]]
    assert found == [
        ("en.q0", 0.0, 0.5, 0.5),
        ("en.q1", 0.5, 0.9, 1.0),
        ("en.q2", 0.9, 1.0, 2.0),
    ]
    parts = [p for p in packing["parts"] if p["origin"] == "en"]
    assert [p["source"] for p in parts if p["split"] == "train"] == ["en.q1", "en.q2"]
    for key in ("documents", "tokens", "chunks", "padding", "truncated", "shards"):
        assert counts["train"][key] == sum(p[key] for p in parts if p["split"] == "train")
    assert "source en: no document is in the bucket en.q0" in report["notes"]


def test_a_bucket_under_the_name_of_another_is_found(workdir, tmp_path):
    assert list(verify(workdir))
    root = shutil.copytree(workdir, tmp_path / "copy")
    made = manifest.load(root / "manifest.json")
    other = {"en.q1": "en.q2", "en.q2": "en.q1"}
    shards = (replace(s, source=other.get(s.source, s.source)) for s in made.shards)
    manifest.save(replace(made, shards=tuple(shards)), root / "manifest.json")
    with pytest.raises(manifest.ManifestError) as e:
        list(verify(root))
    assert "the manifest says 'en.q2', another bucket of its source" in str(e.value)


def test_padding_and_truncation_are_shares(report):
    """Best fit: a document of more than a chunk is truncated, and most chunks are not full."""
    for part in report["packing"]["parts"]:
        room = part["chunks"] * 64
        assert 0 < part["padding"] < room
        assert part["tokens"] + part["padding"] <= room
        assert 0 <= part["truncated"] <= part["documents"]
    assert sum(p["truncated"] for p in report["packing"]["parts"]) > 0


def test_held_out_by_type(report):
    rows = {row["type"]: row for row in report["heldout"]}
    assert {kind: row["asked"] for kind, row in rows.items()} == {
        "book": 0.0,
        "web": 0.1,
        "code": 0.3,
    }
    for source, kind in (("zh", "book"), ("en", "web"), ("py", "code")):
        c, row = report["sources"][source], rows[kind]
        for key, name in (("documents", "packed"), ("tokens", "packed_tokens")):
            assert row[key] == c["heldout"][key]
            assert row[name] == c["heldout"][key] + c["train"][key]
        assert row["barred"] == c["dropped"].get(HELDOUT_DUPLICATE, 0)
    assert rows["book"]["documents"] == 0 < rows["web"]["documents"]
    assert 0.1 < rows["code"]["documents"] / rows["code"]["packed"] < 0.6
    assert not [note for note in report["notes"] if "split heldout" in note]


def test_the_tokenizer_and_its_training(report, workdir):
    found = report["tokenizer"]
    made = manifest.load(workdir / "manifest.json")
    assert (found["kind"], found["vocab_size"], found["hash"]) == ("bpe", 400, made.tokenizer_hash)
    assert set(found["sample_bytes"]) == {"book", "web", "code"}


def test_the_mixture_is_the_plan_of_the_recipe(report):
    plan = report["mixture"]
    assert plan["proportions"] and plan["max_epochs"] == 6
    assert abs(plan["tokens"] - 60_000) < 64
    asked = {t["name"]: t["asked"] for t in plan["types"]}
    assert asked["book"] == pytest.approx((3 / 10 + 3 / 12) / 2, abs=0.01)
    assert [s["asked"]["code"] for s in plan["stages"]] == pytest.approx([4 / 10, 6 / 12])
    assert {s["source"] for s in plan["sources"]} == {"zh", "en.q1", "en.q2", "py"}
    short = [t for t in plan["types"] if t["needed"] > t["capacity"]]
    assert [t["name"] for t in short] == ["code"]
    assert [n for n in report["notes"] if n.startswith("type code runs short: ")]


def test_the_page_tells_of_all_of_it(report):
    page = page_of(report)
    for words in (
        "Packed by best_fit: whole documents into chunks of 64 tokens, longer ones cut",
        '<td class="text">en.q2</td><td class="figure">0.9 to 1</td><td class="figure">2</td>',
        '<td class="text">exclude: word_count</td><td class="figure">20</td>',
        "Trained here: bpe, ",
        "2 control symbols are reserved, which no text produces: &lt;user&gt; and numbered ones.",
        "Planned for a run of 60k tokens that repeats no source more than 6 times",
        "By stage: real shares, and those asked for",
    ):
        assert words in page
    assert page.count("<svg") >= 11


def test_other_words_where_there_is_less(report):
    recipe = report["recipe"] | {"tokenizer": report["recipe"]["tokenizer"] | {"path": "<a>"}}
    packing = report["packing"] | {"buckets": [], "excluded": [], "method": "concat"}
    page = page_of(report | {"recipe": recipe, "packing": packing, "mixture": None})
    assert "Existing tokenizer (bpe), <code>&lt;a&gt;</code>: 400 pieces" in page
    assert "Every document that was kept is in a shard." in page
    assert "documents end to end, cut every 64 tokens" in page
    assert "No run is planned." in page
    took = report["tokenizer"] | {"peak_bytes": None}
    assert "does not tell what it took" in page_of(report | {"tokenizer": took})


def test_hostile_names_are_text(report):
    part = report["packing"]["parts"][0] | {"source": "<script>", "split": "heldout"}
    excluded = {"source": "en", "reason": "<img>", "documents": 1, "tokens": 1, "text_bytes": 1}
    packing = report["packing"] | {"parts": [part], "excluded": [excluded]}
    types = [t | {"name": "<b>"} for t in report["mixture"]["types"]]
    page = page_of(report | {"packing": packing, "mixture": report["mixture"] | {"types": types}})
    assert not [tag for tag in ("<script>", "<img>", "<b>") if tag in page.partition("<nav>")[2]]


def test_lines_tell_what_is_excluded(workdir, shards):
    found = dict(line.split(": ", 1) for line in lines(workdir))
    documents, tokens = (
        sum(getattr(s, key) for s in shards if s.type == "web") for key in ("documents", "tokens")
    )
    assert documents == 60
    start = f"kept 60 of 80 documents (exclude: word_count 20), {tokens:,} tokens, "
    assert found["en"].startswith(start)
    assert found["zh"].startswith("kept 60 of 60 documents (none lost), ")


def test_the_counts_are_in_the_manifest_too(report, workdir):
    made = json.loads((workdir / "manifest.json").read_text(encoding="utf-8"))
    assert made["counts"] == report["sources"]
