"""The plan of a run: what it draws, counted row by row, and what holds for any corpus."""

import random
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from jaxlm.data.mixture_plan import Mixture, Plan, Stage, Supply
from jaxlm.data.order import Order, OrderError, Source

SUPPLIES = (
    Supply("web.q0", "web", 900_000, 900_000 * 240.0, 0.5),
    Supply("web.q1", "web", 1_300_000, 1_300_000 * 250.0, 1.0),
    Supply("book", "book", 400_000, 400_000 * 255.0, 1.0),
    Supply("wiki", "encyclopedia", 900, 900 * 200.0, 1.0),
    Supply("wiki.old", "encyclopedia", 200_000, 200_000 * 230.0, 0.1),
    Supply("code", "code", 90_000, 90_000 * 251.0, 1.0),
    Supply("tiny", "code", 7, 7 * 30.0, 1.0),
)
FIRST = {"web": 40.0, "book": 25.0, "encyclopedia": 5.0, "code": 10.0}
LATE = {"web": 20.0, "book": 35.0, "encyclopedia": 5.0, "code": 30.0}
STAGES = (Stage(Fraction(9, 10), FIRST), Stage(None, LATE))


def mixture(supplies=SUPPLIES, stages=STAGES, max_epochs=4.0, block_rows=100) -> Mixture:
    return Mixture(tuple(supplies), tuple(stages), max_epochs, 256, 0, block_rows, 0.01)


def shards(rows: int) -> tuple[int, ...]:
    """Rows of a source's shards."""
    return (rows // 3, 0, rows // 2, rows - rows // 3 - rows // 2)


# ---- a run of a million steps, counted -----------------------------------------------------------


@pytest.fixture(scope="module")
def counted() -> tuple[Plan, dict[str, np.ndarray]]:
    """A plan of a million steps of 4 rows, and source -> int64[2, rows]: draws in each stage."""
    end, edge = 4_000_000, 3_600_000
    plan = mixture().plan(end)
    sources = {s.source: Source(shards(s.rows), 5_000) for s in SUPPLIES}
    order = Order(sources, plan.order_stages, seed=0)
    starts = {name: np.cumsum((0, *s.shard_rows)) for name, s in sources.items()}
    counts = {s.source: np.zeros((2, s.rows), np.int64) for s in SUPPLIES}
    for start in range(0, end, 50_000):
        where = order.locate(np.arange(start, start + 50_000))
        for i, name in enumerate(order.names):
            here = where.source == i
            rows = starts[name][where.shard[here]] + where.row[here]
            counts[name][int(start >= edge)] += np.bincount(rows, minlength=len(counts[name][0]))
    return plan, counts


def test_a_million_steps_use_every_row_evenly_and_none_too_often(counted):
    plan, counts = counted
    for name, count in counts.items():
        used = count.sum(axis=0)
        assert used.max() - used.min() <= 1, name
        assert used.max() <= 4, name
        [part] = [s for s in plan.sources if s.supply.source == name]
        assert (part.rows, part.epochs) == (used.sum(), used.mean())
    for full in ("code", "tiny", "wiki"):  # they have not enough
        assert counts[full].sum(axis=0).mean() > 3.995 - 3 / len(counts[full][0])


def test_a_million_steps_have_the_proportions_asked_for_within_a_thousandth(counted):
    plan, counts = counted
    of_stage = [
        {s.source: counts[s.source][k].sum() * s.tokens / s.rows for s in SUPPLIES} for k in (0, 1)
    ]
    # code runs short, and 4 times all of it are shared by the stages
    for k, (asked, tokens) in enumerate(zip((FIRST, LATE), of_stage, strict=True)):
        total = sum(tokens.values())
        code = (tokens["code"] + tokens["tiny"]) / total
        rest = {t: w for t, w in asked.items() if t != "code"}
        for type, weight in rest.items():
            share = sum(tokens[s.source] for s in SUPPLIES if s.type == type) / total
            assert share == pytest.approx((1 - code) * weight / sum(rest.values()), abs=0.001)
            assert share == pytest.approx(plan.stages[k].planned[type], abs=0.001)
        # sources share what their type gets by tokens times weight, until they are used up
        q0, q1 = 900_000 * 240.0 * 0.5, 1_300_000 * 250.0
        assert tokens["web.q0"] / tokens["web.q1"] == pytest.approx(q0 / q1, rel=0.001)
    # ... with one factor on its weight in both
    early, late = ((t["code"] + t["tiny"]) / t["book"] for t in of_stage)
    assert early / late == pytest.approx((10 / 25) / (30 / 35), rel=0.002)


def test_the_stage_edge_of_a_million_steps_is_where_it_was_asked_for(counted):
    plan, _ = counted
    assert [(s.start, s.end) for s in plan.stages] == [(0, 3_600_000), (3_600_000, 4_000_000)]
    assert [stage.until for stage in plan.order_stages] == [3_600_000, None]


# ---- any corpus ----------------------------------------------------------------------------------


def any_mixture(rng: random.Random, least: float = 0.0) -> Mixture:
    """1 to 5 types of 1 to 6 sources, of 10**least rows to 10**4, and 0 to 3 stages."""
    types = [f"type{i}" for i in range(rng.randint(1, 5))]
    supplies = []
    for type in types:
        for i in range(rng.randint(1, 6)):
            rows = int(10 ** rng.uniform(least, 4))
            per_row = rng.uniform(0.3, 1.0) * 256
            weight = rng.choice((1.0, 1.0, 0.5, 2.0, 0.0 if i else 1.0))
            supplies.append(Supply(f"{type}.{i}", type, rows, rows * per_row, weight))
    count = rng.randint(0, 3)
    stages = []
    for k in range(count):
        weights = {type: rng.choice((0.0, rng.uniform(0.05, 1))) for type in types}
        weights[rng.choice(types)] = 1.0
        until = Fraction(k + 1, count) if k < count - 1 else None
        stages.append(Stage(until, weights))
    return Mixture(tuple(supplies), tuple(stages), rng.choice((1, 1.5, 4, 10)), 256, 0, 10, 0.01)


@pytest.fixture(scope="module")
def any_plans() -> list[tuple[int, Plan]]:
    """Plans of lengths from a few rows to all that there is, and which seed each is of."""
    found = []
    for seed in range(200):
        rng = random.Random(seed)
        wanted = any_mixture(rng)
        rows = sum(s.rows for s in wanted.supplies if s.weight)
        end = max(1, int(rng.uniform(0.05, 1.0) * rows * wanted.max_epochs))
        try:
            found.append((seed, wanted.plan(end)))
        except OrderError as e:
            assert "too small" in str(e) or "is lost" in str(e) or "is empty" in str(e), e
    assert len(found) > 100
    return found


def test_no_source_is_used_too_often(any_plans):
    for seed, plan in any_plans:
        for s in plan.sources:
            assert s.rows <= plan.mixture.max_epochs * s.supply.rows, (seed, s)
            assert s.supply.weight or not s.rows
        assert sum(s.rows for s in plan.sources) == plan.end


def test_what_runs_short_gives_all_and_the_others_keep_their_proportions(any_plans):
    several = 0
    for seed, plan in any_plans:
        stages = plan.stages
        short = {t for s in stages for t in s.asked if s.planned[t] < s.asked[t] - 1e-6}
        several += len(short) > 1
        for type in short:
            sources = [s for s in plan.sources if s.supply.type == type and s.supply.weight]
            assert all(s.full for s in sources), (seed, type)
        # In each stage a type that is not short has its weight, one that is has a part of it, the
        # same part in all stages.
        full = {t for t, sources in _of_type(plan).items() if all(s.full for s in sources)}
        parts = dict[str, float]()
        for s in stages:
            assert sum(s.planned.values()) == pytest.approx(1)
            factors = {t: s.planned[t] / s.asked[t] for t in s.asked if s.asked[t]}
            free = [factors[t] for t in factors if t not in full]
            assert free == pytest.approx([max(factors.values())] * len(free)), seed
            for t in full & factors.keys() if free else ():
                part = factors[t] / free[0]
                assert part <= 1 + 1e-6 and parts.setdefault(t, part) == pytest.approx(part), seed
    assert several


def _of_type(plan: Plan) -> dict[str, list]:
    """Type -> its sources that may be drawn."""
    types = {s.supply.type for s in plan.sources}
    return {t: [s for s in plan.sources if s.supply.type == t and s.supply.weight] for t in types}


def test_sources_of_a_type_share_by_tokens_and_weight_until_they_are_full(any_plans):
    for seed, plan in any_plans:
        for t in plan.types:
            sources = [s for s in plan.sources if s.supply.type == t.name and s.supply.weight]
            free = [s for s in sources if not s.full]
            pulls = [s.epochs / s.supply.weight for s in free]
            # a few rows of rounding, of small sources
            slack = [8 / s.supply.rows / s.supply.weight for s in free]
            most = min((p + e for p, e in zip(pulls, slack, strict=True)), default=0)
            assert all(p - e <= most for p, e in zip(pulls, slack, strict=True)), (seed, t.name)


def test_proportions_are_exact_when_nothing_runs_short():
    exact = 0
    for seed in range(100):
        wanted = any_mixture(random.Random(seed), least=2.0)
        end = wanted.longest() * 9 // 10 // 60 * 60  # halves and thirds of it are whole blocks
        if end < 3_000:
            continue
        plan = wanted.plan(end)
        for t in plan.types:
            assert t.planned == pytest.approx(t.asked), seed
            assert t.real == pytest.approx(t.planned, abs=0.002), seed
        for s in plan.stages:
            assert dict(s.planned) == dict(s.asked), seed
        exact += 1
    assert exact >= 10


def test_the_longest_run_is_the_longest():
    for seed in range(30):
        wanted = any_mixture(random.Random(seed))
        longest = wanted.longest()
        if longest < 500:
            continue
        assert wanted.plan(longest).off <= 0.01
        try:
            assert wanted.plan(longest * 3 // 2 + 200).off > 1e-9, seed
        except OrderError as e:
            assert "too small" in str(e)


def test_the_plan_does_not_depend_on_how_sources_and_types_are_listed(any_plans):
    for seed, plan in any_plans[:40]:
        rng = random.Random(seed)
        m = plan.mixture
        supplies = rng.sample(m.supplies, len(m.supplies))
        stages = []
        for stage in m.stages:
            turned = rng.sample(list(stage.weights), len(stage.weights))
            stages.append(Stage(stage.until, {t: stage.weights[t] for t in turned}))
        again = replace(m, supplies=tuple(supplies), stages=tuple(stages)).plan(plan.end)
        assert again.order_stages == plan.order_stages
        assert again.types == plan.types and again.sources == plan.sources


def test_a_longer_run_has_the_same_order_while_nothing_is_full():
    stages = (Stage(1_000, FIRST), Stage(None, LATE))
    plans = [mixture(stages=stages).plan(end).order_stages for end in (1_500, 30_000, 100_000)]
    assert plans[0] == plans[1] == plans[2]
    assert mixture(stages=stages).plan(3_000_000).order_stages != plans[0]


def test_one_type_is_all_there_is():
    [web] = mixture([Supply("a", "web", 100, 25_000.0, 1.0)], ()).plan(250).types
    assert (web.asked, web.planned, web.real, web.epochs) == (1, 1, 1, 2.5)


def test_five_hundred_sources_take_a_moment():
    rng = random.Random(0)
    supplies = []
    for i in range(500):
        rows = int(10 ** rng.uniform(1, 5))
        type = f"type{i % 7}"
        supplies.append(Supply(f"s{i:03}", type, rows, rows * rng.uniform(100, 256), 1.0))
    stages = [Stage(Fraction(1, 2), {f"type{i}": i + 1.0 for i in range(7)})]
    stages.append(Stage(None, {f"type{i}": 8.0 - i for i in range(7)}))
    wanted = mixture(supplies, stages)
    end = wanted.longest() * 12 // 10
    began = time.process_time()
    plan = wanted.plan(end)
    assert any(s.full for s in plan.sources) and not all(s.full for s in plan.sources)
    assert time.process_time() - began < 10  # 1 s or so


# ---- refusals ------------------------------------------------------------------------------------

SMALL = (Supply("a", "web", 100, 25_600.0, 1.0), Supply("b", "code", 50, 12_800.0, 1.0))


def refusal(stages, end=100, supplies=SMALL, block_rows=10) -> str:
    with pytest.raises(OrderError) as e:
        mixture(supplies, stages, block_rows=block_rows).plan(end)
    return str(e.value)


def test_types_that_the_corpus_has_not_and_types_left_unsaid():
    assert refusal([Stage(None, {"wbe": 1.0, "code": 1.0})]) == (
        "stage 0 of the mixture names 'wbe' and gives no weight to 'web'; the types of the corpus "
        "are code, web: give each a weight, 0 to leave it out"
    )
    stages = [Stage(Fraction(1, 2), {"web": 1.0, "code": 0.0}), Stage(None, {"web": 1.0})]
    assert refusal(stages).startswith("stage 1 of the mixture gives no weight to 'code'; ")


def test_weights_that_are_none():
    assert refusal([Stage(None, {"web": 0.0, "code": 0.0})]) == (
        "stage 0 of the mixture: weights all 0: must be 0, or from 0.000001 to 1,000,000, and one "
        "above 0"
    )
    for bad in ("-1.0", "inf", "nan", "1e+308", "1e-300"):
        message = refusal([Stage(None, {"web": float(bad), "code": 1.0})])
        assert f"weights ['web={bad}']: must" in message


def test_a_type_without_a_row_or_a_weight():
    even = Stage(None, {"web": 1.0, "code": 1.0})
    short = [SMALL[0], Supply("b", "code", 0, 0.0, 1.0)]
    for stages in ([even], []):
        assert refusal(stages, supplies=short) == (
            "type 'code' has not one row of seq_len=256: no shard is so long; lower seq_len, build "
            "the corpus with more text, or give the type the weight 0 in the mixture"
        )
    none = [s._replace(rows=0, tokens=0.0) for s in SMALL]  # seq_len is longer than every shard
    assert refusal([], supplies=none).startswith("type 'code' has not one row of seq_len=256: ")
    assert refusal([], supplies=[s._replace(weight=0.0) for s in SMALL]) == (
        "the sources all have the weight 0 in the recipe: there is nothing to draw; give one "
        "another"
    )
    left_out = mixture(short, [Stage(None, {"web": 1.0, "code": 0.0})]).plan(100)
    assert [t.real for t in left_out.types] == [0.0, 1.0]
    assert refusal([even], supplies=[SMALL[0], SMALL[1]._replace(weight=0.0)]) == (
        "stage 0 of the mixture takes type 'code', whose sources all have the weight 0 in the "
        "recipe; give one another, or give the type the weight 0"
    )


def test_a_stage_lost_in_the_rounding():
    stages = [Stage(Fraction(95, 100), {"web": 1.0, "code": 1.0})]
    stages.append(Stage(None, {"web": 1.0, "code": 0.0}))
    assert refusal(stages) == (
        "stage 1 of the mixture has 5 of 100 rows and is lost: stages begin with whole blocks, "
        "block_rows=10; lower block_rows, give the stage more of the run, or make the run longer "
        "(recipe: config.mixture; run: config.data.mixture, .block_rows, config.train.end)"
    )
    assert len(mixture(SMALL, stages, block_rows=5).plan(100).stages) == 2
    stages[0] = Stage(Fraction(1, 1000), {"web": 1.0, "code": 1.0})
    message = refusal(stages, block_rows=1)
    assert message.startswith("stage 0 of the mixture has 0 of 100 rows and is lost: ")
    assert "block_rows=1; give the stage more" in message


@pytest.mark.parametrize("block_rows", [1, 100])
def test_the_capacity_of_a_type_is_what_there_is_whatever_rounding_leaves_of_it(block_rows):
    supplies = [Supply("a", "web", 1000, 64_000.0, 1.0), Supply("b", "code", 1, 60.0, 1.0)]
    wanted = mixture(supplies, [Stage(None, {"web": 90.0, "code": 10.0})], 1.0, block_rows)
    for end in range(11, 300):
        code, _ = wanted.plan(end).types
        assert code.capacity == 60
        assert code.needed == pytest.approx(0.1 * end / (0.9 / 64 + 0.1 / 60))


def test_a_corpus_that_is_too_small_in_all():
    message = refusal([], end=700)
    assert message == (
        "the corpus is too small for 700 rows (179,200 tokens): stage 0 of the mixture takes code, "
        "web alone, which is 150 rows (38,400 tokens), each to be used max_epochs=4 times at most; "
        "train on 599 rows (153,344 tokens) at most, add text, or raise max_epochs (recipe: "
        "config.mixture.tokens, .max_epochs, .tolerance; run: config.train.end, "
        "config.data.max_epochs, .mixture_tolerance)"
    )
    assert [s.epochs for s in mixture(SMALL, []).plan(599).sources] == [3.99, 4]


def test_nothing_to_draw():
    assert "a run of 0 rows of 256 tokens draws nothing" in refusal([], end=0)
    with pytest.raises(OrderError, match="the corpus has no text to train on"):
        mixture([], [])
