"""Near dedup as a whole: what it promises holds, whatever the partitions, memory and workers."""

import itertools
import random
from dataclasses import replace

import pytest

from data_tools.dedup import near
from data_tools.dedup.config import (
    BandConfig,
    NearConfig,
    SameConfig,
    ShingleConfig,
    SurvivorConfig,
)
from data_tools.document import Document
from data_tools.engines import InProcess, WorkerPool
from data_tools.heldout import HeldoutConfig
from data_tools.stage import Input, StageResult
from tests.data_tools.dedup.material import (
    HAN,
    WORDS,
    Outcome,
    chinese,
    document,
    edited,
    english,
    hash_of,
    naive_jaccard,
    naive_set,
    near_dedup,
    put,
    runner,
)

SIGNS = ["a", "b2", "(", ")", "=", "+", "\n", "x_1", "return", "0", "7"]


def corpus() -> list[Document]:
    """540 documents: 30 families of copies with 0 to 10 edits, in each of three kinds."""
    found = []
    for family, copy in itertools.product(range(30), range(6)):
        name = (family, copy)
        zh = edited(chinese(family, 300), name, copy * 2, HAN)
        en = edited(english(family, 200), name, copy * 2, WORDS)
        py = edited(random.Random(family).choices(SIGNS, k=200), name, copy * 2, SIGNS)
        quality = (copy % 3) / 3
        found.append(document("".join(zh), len(found), quality=quality))
        found.append(document(" ".join(en), len(found), source="e", quality=quality))
        found.append(document(" ".join(py), len(found), "code", "c", quality))
    random.Random(0).shuffle(found)
    return found


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return corpus()


@pytest.fixture(autouse=True)
def any_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these documents fit in the least budget that a recipe may give."""
    monkeypatch.setattr("data_tools.dedup.config.LEAST_MEMORY_BYTES", 1)


@pytest.fixture(scope="module")
def outcome(documents, tmp_path_factory):
    return near_dedup(tmp_path_factory.mktemp("near"), documents)


def test_every_dropped_document_is_like_the_one_kept_for_it(documents, outcome):
    by_id = {d.id: d for d in documents}
    assert len(outcome.verdicts) > 100
    for id, detail in outcome.verdicts.items():
        kept = outcome.kept_for(id)
        similarity = naive_jaccard(by_id[id], by_id[kept])
        assert kept not in outcome.verdicts and similarity >= 0.8
        assert detail == f"similarity {similarity:.4f} to document {kept.hex()}"


def test_similar_pairs_are_found(documents, outcome):
    """Of a pair with similarity 0.85 or more, not both stay: in 95% of the pairs at least."""
    sets = {d.id: naive_set(d) for d in documents}
    stay = [d.id for d in documents if d.id not in outcome.verdicts]
    left = total = 0
    for one, other in itertools.combinations(sets, 2):
        a, b = sets[one], sets[other]
        if len(a & b) >= 0.85 * len(a | b):
            total += 1
            left += one in stay and other in stay
    assert total > 100 and left <= 0.05 * total


@pytest.mark.parametrize(("partitions", "memory_bytes"), [(5, 1 << 28), (3, 20_000)])
def test_partitions_and_memory_change_nothing(
    documents, outcome, tmp_path, partitions, memory_bytes
):
    config = NearConfig(memory_bytes=memory_bytes)
    order = random.Random(partitions).sample(documents, len(documents))
    other = near_dedup(tmp_path, order, config, partitions)
    assert_same(other, outcome)
    assert (len(other.results["near_duplicates"].commits) > 1) == (memory_bytes < 1 << 20)


def test_a_range_for_every_few_keys_and_a_block_for_each_pair(documents, tmp_path):
    chosen = [d for d in documents if d.source == "e"][:60]
    config = NearConfig(memory_bytes=5_000)
    tiny = near_dedup(tmp_path / "tiny", chosen, config, 2)
    assert len(tiny.results["near_candidates"].commits) > 10
    assert_same(tiny, near_dedup(tmp_path / "much", chosen))


def assert_same(one: Outcome, other: Outcome) -> None:
    assert one.verdicts == other.verdicts
    assert one.representatives == other.representatives
    assert one.clusters == other.clusters
    said, before = (near.summary(o.results, NearConfig()) for o in (one, other))
    assert said.pop("largest_ranges")["keys"] <= before.pop("largest_ranges")["keys"]
    assert said == before


def test_row_groups_change_nothing(documents, outcome, tmp_path, monkeypatch):
    monkeypatch.setattr("data_tools.document.ROW_GROUP_BYTES", 2_000)
    assert_same(near_dedup(tmp_path, documents, partitions=2), outcome)


def test_worker_processes_change_no_byte(documents, tmp_path):
    config = NearConfig(memory_bytes=300_000)
    with WorkerPool(2) as pool:
        two = near_dedup(tmp_path / "two", documents[:200], config, 2, engine=pool)
    one = near_dedup(tmp_path / "one", documents[:200], config, 2)
    for stage, result in one.results.items():
        outputs = [(c.partition, c.outputs, c.report) for c in result.commits]
        assert outputs == [(c.partition, c.outputs, c.report) for c in two.results[stage].commits]


def test_a_second_run_runs_nothing_and_a_threshold_only_what_depends_on_it(documents, tmp_path):
    def ran(config: NearConfig) -> list[str]:
        run = near_dedup_again(tmp_path, documents[:100], config)
        return [stage for stage, result in run.items() if result.ran]

    assert len(ran(NearConfig())) == 6
    assert ran(NearConfig()) == []
    strict = NearConfig(same=SameConfig(threshold=0.9))
    assert ran(strict) == ["near_verify", "near_components", "near_duplicates"]
    assert ran(replace(strict, survivor=SurvivorConfig(("longest",)))) == ["near_duplicates"]


def near_dedup_again(root, documents, config):
    """The stages over one partition, in the same directory each time."""
    path = root / "p-00000" / "documents.parquet"
    if not path.exists():
        put(root / "p-00000", documents)
    results: dict[str, StageResult] = {}
    files = (Input(path, "p-00000", hash_of(path)),)
    run = runner(root, InProcess(), results)
    near.find(run, [("p-00000", files)], config, HeldoutConfig(0))
    return results


def test_clusters_say_the_same_as_the_verdicts(documents, outcome):
    by_id = {d.id: d for d in documents}
    pairs = {id: outcome.kept_for(id) for id in outcome.verdicts}
    rows = [(r["cluster"], r["id"], r["source"], r["kept"]) for r in outcome.clusters]
    assert set(rows) == {(kept, id, by_id[id].source, False) for id, kept in pairs.items()} | {
        (kept, kept, by_id[kept].source, True) for kept in pairs.values()
    }
    assert len(rows) == len(set(rows))
    for row in outcome.clusters:
        assert row["similarity"] == naive_jaccard(by_id[row["id"]], by_id[row["cluster"]])
    order = [r["cluster"] for r in outcome.clusters]
    assert [k for k, _ in itertools.groupby(order)] == list(dict.fromkeys(order))


def test_representatives_are_those_kept_for_others(outcome):
    kept = {outcome.kept_for(id) for id in outcome.verdicts}
    assert outcome.representatives == kept


def test_distinct_short_texts_stay_and_equal_ones_do_not(tmp_path):
    texts = [
        "好的。",
        "好的！",
        "是的。",
        "Thank you.",
        "Thank you!",
        "谢谢你" * 6,
        "谢谢你" * 7,
        "。",
    ]
    documents = [document(text, i) for i, text in enumerate(texts * 2)]
    outcome = near_dedup(tmp_path, documents, partitions=2)
    stay = [d.text for d in documents if d.id not in outcome.verdicts]
    assert sorted(stay) == sorted(texts)
    kept = {d.text: d.id for d in documents if d.id not in outcome.verdicts}
    for d in documents:
        if d.id in outcome.verdicts:
            kept_id = kept[d.text]
            assert outcome.verdicts[d.id] == f"similarity 1.0000 to document {kept_id.hex()}"


def test_types_that_take_no_part_still_lose_copies(tmp_path):
    text = chinese(0, 200)
    near_copy = "".join(edited(text, 0, 1, HAN))
    documents = [
        document("".join(text), 0, "web"),
        document("".join(text), 1, "poetry"),
        document("".join(text), 2, "poetry"),
        document(near_copy, 3, "poetry"),
    ]
    config = NearConfig(shingles=ShingleConfig(types=("web",)))
    outcome = near_dedup(tmp_path / "web", documents, config)
    assert len({d.text for d in documents if d.id not in outcome.verdicts}) == 2
    assert len(outcome.verdicts) == 2
    assert len(near_dedup(tmp_path / "all", documents).verdicts) == 3


def versions(edits: dict[str, tuple[int, float]]) -> list[Document]:
    """One text in each source: (edits, quality)."""
    text = chinese("versions", 1000)
    return [
        document("".join(edited(text, name, n, HAN) + text[:n]), 0, "web", name, quality)
        for name, (n, quality) in edits.items()
    ]


@pytest.mark.parametrize(
    ("survivor", "stays"),
    [
        (SurvivorConfig(), "good"),
        (SurvivorConfig(("longest", "quality")), "long"),
        (SurvivorConfig(("source",), ("plain", "long")), "plain"),
        (SurvivorConfig(("quality", "source"), ("also_good",)), "also_good"),
    ],
)
def test_the_policy_says_which_stays(tmp_path, survivor, stays):
    documents = versions(
        {"plain": (1, 0.5), "good": (3, 0.9), "also_good": (2, 0.9), "long": (4, 0.5)}
    )
    outcome = near_dedup(tmp_path, documents, NearConfig(survivor=survivor))
    assert [d.source for d in documents if d.id not in outcome.verdicts] == [stays]


def test_equal_in_all_the_smallest_id_stays(tmp_path):
    documents = [document("".join(chinese(0, 100)), i) for i in range(5)]
    outcome = near_dedup(tmp_path, documents)
    smallest = min(d.id for d in documents)
    assert {outcome.kept_for(id) for id in outcome.verdicts} == {smallest}
    assert len(outcome.verdicts) == 4


def test_a_chain_is_not_one_cluster(tmp_path):
    """Each text differs a little from the one before: the ends have nothing in common."""
    text = chinese("chain", 300)
    chain = []
    for i in range(40):
        chain.append(document("".join(text), i))
        text[i * 7 : i * 7 + 7] = chinese(i, 7)
    outcome = near_dedup(tmp_path, chain)
    by_id = {d.id: d for d in chain}
    stay = [d for d in chain if d.id not in outcome.verdicts]
    assert 3 <= len(stay) <= 20
    for one, other in itertools.combinations(stay, 2):
        assert naive_jaccard(one, other) < 0.8
    for id in outcome.verdicts:
        assert naive_jaccard(by_id[id], by_id[outcome.kept_for(id)]) >= 0.8


def test_pages_of_one_template_do_not_hide_copies_of_each_other(tmp_path):
    """All pages have bands in common with the first, and only their own copies are like them."""
    template = chinese("template", 400)
    documents = []
    for page in range(40):
        text = template + chinese(page, 80)
        for copy in range(2):
            units = edited(text, (page, copy), 2 * copy, HAN)
            documents.append(document("".join(units), len(documents)))
    outcome = near_dedup(tmp_path, documents)
    assert near.summary(outcome.results, NearConfig())["rejected"] > 100
    assert len(outcome.verdicts) >= 38
    assert naive_jaccard(documents[0], documents[2]) < 0.8


def test_containment_drops_a_part_and_never_the_whole(tmp_path):
    whole = chinese("whole", 400)
    documents = [document("".join(whole), 0, quality=0.1), document("".join(whole[:280]), 1)]
    assert not near_dedup(tmp_path / "off", documents).verdicts
    config = NearConfig(
        same=SameConfig(containment=0.95),
        candidates=BandConfig(64, 2),
        survivor=SurvivorConfig(("longest",)),
    )
    outcome = near_dedup(tmp_path / "on", documents, config)
    whole_id, part_id = documents[0].id, documents[1].id
    assert outcome.verdicts == {
        part_id: f"similarity 0.6970 to document {whole_id.hex()}, which has 1.0000 of it"
    }
    config = replace(config, survivor=SurvivorConfig(("quality",)))
    assert not near_dedup(tmp_path / "part", documents, config).verdicts


def test_a_source_that_loses_too_much_raises_an_alarm(tmp_path):
    text = "".join(chinese(0, 100))
    documents = [document(text, i, source="mirror") for i in range(10)]
    documents += [document("".join(chinese(i + 1, 100)), i, source="rest") for i in range(10)]
    outcome = near_dedup(tmp_path, documents)
    said = near.summary(outcome.results, NearConfig())
    assert said["alarms"] == [
        "source mirror: near dedup takes 9 of 10 documents (90%), more than alarm_share=0.5"
    ]
    assert said["lost"] == {"mirror": 9} and said["sizes"] == {"10": 1}
    assert not near.summary(outcome.results, NearConfig(alarm_share=0.9))["alarms"]


def test_large_buckets_are_split_and_reported(tmp_path):
    families = [chinese(f, 200) for f in range(4)]
    head = chinese("head", 400)
    texts = ["".join([*head, *edited(families[i % 4], i, 1, HAN)]) for i in range(40)]
    documents = [document(text, i) for i, text in enumerate(texts)]
    config = NearConfig(bucket_limit=8)
    split = near_dedup(tmp_path / "split", documents, config)
    said = near.summary(split.results, config)
    assert said["oversized"] > 0 and max(said["oversized_samples"]) > 8
    assert said["oversized_samples"] == sorted(said["oversized_samples"], reverse=True)
    assert split.verdicts == near_dedup(tmp_path / "whole", documents).verdicts
    assert len(documents) - len(split.verdicts) == 4


def test_no_documents(tmp_path):
    outcome = near_dedup(tmp_path, [], partitions=2)
    assert outcome.verdicts == {} and outcome.clusters == []
    assert near.summary(outcome.results, NearConfig())["alarms"] == []
