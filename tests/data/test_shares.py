"""Shares within limits: small cases worked out by hand, and the limits of any case."""

import math
import random

import pytest

from jaxlm.data.shares import Length, Member, Pool, Unfilled, solve


def pool(*members: tuple[float, float]) -> Pool:
    """Members of (pull, cap), 1 token a row."""
    return Pool([Member(str(i), pull, cap, 1.0) for i, (pull, cap) in enumerate(members)])


def test_a_pool_shares_by_pull_until_a_member_is_at_its_cap():
    web = pool((1, 10), (3, 60), (1, 100))
    assert web.shares(20) == [0.2, 0.6, 0.2]
    assert web.shares(50) == [0.2, 0.6, 0.2]  # 10 of the first is all there is
    assert web.shares(90) == pytest.approx([10 / 90, 60 / 90, 20 / 90])
    assert web.shares(120) == pytest.approx([10 / 120, 60 / 120, 50 / 120])
    assert web.shares(170) == pytest.approx([10 / 170, 60 / 170, 100 / 170])
    assert (web.capacity, web.most_rows) == (170, 170)


def test_the_rows_of_a_pool_are_those_of_its_members():
    web = Pool([Member("long", 1, 100, 10.0), Member("short", 1, 1000, 2.0)])
    assert [m.name for m in web.members] == ["long", "short"]
    assert web.rows(100) == 5 + 25
    assert web.rows(300) == 10 + 100
    assert web.rows(web.capacity) == web.most_rows == 510


def test_a_short_pool_gives_what_it_has_and_the_others_in_their_proportions():
    pools = {"a": pool((1, 10)), "b": pool((1, 1000)), "c": pool((1, 1000))}
    found = solve(pools, [Length(100, {"a": 0.5, "b": 0.3, "c": 0.2})])
    assert found.short == {"a"}
    assert found.shares[0] == pytest.approx({"a": 0.1, "b": 0.54, "c": 0.36})
    assert found.tokens == pytest.approx({"a": 10, "b": 54, "c": 36})


def test_what_is_taken_from_one_may_make_the_next_one_short():
    pools = {"a": pool((1, 10)), "b": pool((1, 40)), "c": pool((1, 1000))}
    found = solve(pools, [Length(100, {"a": 0.5, "b": 0.3, "c": 0.2})])
    assert found.short == {"a", "b"}
    assert found.shares[0] == pytest.approx({"a": 0.1, "b": 0.4, "c": 0.5})


def test_stages_have_the_same_part_of_a_short_pool():
    pools = {"a": pool((1, 21)), "b": pool((1, 1000))}
    stages = [Length(90, {"a": 0.2, "b": 0.8}), Length(10, {"a": 0.6, "b": 0.4})]
    found = solve(pools, stages)
    early, late = (s["a"] / s["b"] for s in found.shares)
    assert early / late == pytest.approx((0.2 / 0.8) / (0.6 / 0.4))
    assert 90 * found.shares[0]["a"] + 10 * found.shares[1]["a"] == pytest.approx(21)


def test_without_a_shortage_the_shares_are_the_very_ones():
    shares = {"a": 1 / 3, "b": 2 / 3}
    found = solve({"a": pool((1, 10)), "b": pool((1, 99))}, [Length(29, shares)])
    assert found.shares[0] is shares and not found.short


def test_rows_hold_more_tokens_of_one_than_of_another():
    pools = {
        "a": Pool([Member("a", 1, 1e9, 100.0)]),
        "b": Pool([Member("b", 1, 1e9, 50.0)]),
    }
    stages = [Length(300, {"a": 0.5, "b": 0.5})]
    assert solve(pools, stages).tokens == pytest.approx({"a": 10_000, "b": 10_000})


def test_stages_that_nothing_fills():
    pools = {"a": pool((1, 10)), "b": pool((1, 40)), "c": pool((1, 1000))}
    cases = [
        ([Length(1051, {"a": 0.1, "b": 0.1, "c": 0.8})], 0, ["a", "b", "c"]),
        ([Length(5, {"a": 0, "b": 0, "c": 1}), Length(51, {"a": 0.5, "b": 0.5, "c": 0})], 1,
         ["a", "b"]),
        ([Length(40, {"a": 0, "b": 1, "c": 0}), Length(11, {"a": 0.5, "b": 0.5, "c": 0})], 0,
         ["a", "b"]),
    ]  # fmt: skip
    for stages, stage, names in cases:
        with pytest.raises(Unfilled) as e:
            solve(pools, stages)
        assert (e.value.stage, e.value.pools) == (stage, names)
    found = solve(pools, [Length(1050, {"a": 0.1, "b": 0.1, "c": 0.8})])
    assert found.tokens == pytest.approx({"a": 10, "b": 40, "c": 1000})


@pytest.mark.parametrize("seed", range(60))
def test_any_solution_fills_the_rows_within_the_caps(seed):
    rng = random.Random(seed)
    pools, names = {}, [f"p{i}" for i in range(rng.randint(1, 6))]
    for name in names:
        members = []
        for i in range(rng.randint(1, 5)):
            rate = rng.uniform(5, 256)  # rows that differ as much as they can
            members.append(Member(f"{name}{i}", rng.uniform(0.1, 9), rng.uniform(1, 1e5), rate))
        pools[name] = Pool(members)
    most = sum(p.most_rows for p in pools.values())
    stages = []
    for _ in range(rng.randint(1, 4)):
        weights = [rng.uniform(0.01, 1) for _ in names]
        shares = {n: w / sum(weights) for n, w in zip(names, weights, strict=True)}
        stages.append(Length(max(1, int(most * rng.uniform(0.01, 0.24))), shares))
    found = solve(pools, stages)
    given = dict.fromkeys(names, 0.0)
    for stage, shares in zip(stages, found.shares, strict=True):
        assert math.fsum(shares.values()) == pytest.approx(1)
        rate = {n: pools[n].rows(t) / t for n, t in found.tokens.items()}
        tokens = stage.rows / sum(share * rate[n] for n, share in shares.items())
        for n in names:
            given[n] += tokens * shares[n]
    for n in names:
        assert given[n] == pytest.approx(found.tokens[n], rel=1e-6)
        assert found.tokens[n] <= pools[n].capacity
