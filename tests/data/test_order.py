"""The order: every row exactly once an epoch, exact mixtures, an inverse, no state."""

import numpy as np
import pytest

from jaxlm.data.order import LIMIT, Location, Order, OrderError, Source, Stage

WEB, CODE, POEMS = Source((70, 0, 130, 101), 64), Source((50, 30), 1000), Source((7,), 3)
SOURCES = {"web": WEB, "code": CODE, "poems": POEMS}
FIRST = Stage(1_995, (("web", 0.6), ("code", 0.4), ("poems", 0.0)))
LAST = Stage(None, (("web", 0.3), ("code", 0.5), ("poems", 0.2)))


def make(stages=(FIRST, LAST), seed=0, block_rows=100, sources=SOURCES) -> Order:
    return Order(sources, stages, seed, block_rows)


def alone(source: Source, seed=0, block_rows=10) -> Order:
    return Order({"a": source}, [Stage(None, (("a", 1.0),))], seed, block_rows)


def rows_of(where: Location, name: str, order: Order) -> np.ndarray:
    """int64[N, 3]: (epoch, shard, row) of the draws of one source, in their order."""
    of_source = where.source == order.names.index(name)
    return np.stack([where.epoch, where.shard, where.row], axis=1)[of_source]


def test_every_row_of_an_epoch_is_drawn_exactly_once_across_a_stage_edge_and_epochs():
    order = make()
    where = order.locate(np.arange(6_000))
    for name, source in SOURCES.items():
        drawn = rows_of(where, name, order)
        rows = sum(source.shard_rows)
        every = [(s, r) for s, n in enumerate(source.shard_rows) for r in range(n)]
        epochs = len(drawn) // rows
        assert epochs >= 3
        # Blocks mix the draws, so an epoch ends in the middle of one: by its number, not its place.
        for epoch in range(epochs - 1):
            assert sorted(map(tuple, drawn[drawn[:, 0] == epoch, 1:].tolist())) == every


def test_counts_are_exact_in_every_block_and_the_stage_edge_is_rounded_up():
    order = make()
    blocks = order.locate(np.arange(4_000)).source.reshape(40, 100)
    counts = np.stack([np.bincount(block, minlength=3) for block in blocks])
    assert order.names == ("code", "poems", "web")
    assert (counts[:20] == [40, 0, 60]).all()  # until=1_995 lasts to 2_000
    assert (counts[20:] == [50, 20, 30]).all()
    assert len({block.tobytes() for block in blocks}) == 40, "each block is mixed in its own way"


def test_any_stretch_of_a_block_is_mixed():
    order = make(block_rows=1000)
    source = order.locate(np.arange(1000)).source
    for start in range(0, 1000, 100):
        share = np.mean(source[start : start + 100] == order.names.index("web"))
        assert 0.4 < share < 0.8, f"rows {start}.. have {share} of web, which weighs 0.6"


@pytest.mark.parametrize("start", [0, 2**31 - 500, 2**33 - 500, 2**48, LIMIT - 1000])
def test_the_inverse_agrees(start):
    order = make()
    positions = np.arange(start, start + 1000)
    assert (order.position_of(order.locate(positions)) == positions).all()


def test_the_inverse_agrees_at_random_positions():
    order = make()
    positions = np.random.default_rng(0).integers(0, LIMIT, 1000)
    assert (order.position_of(order.locate(positions)) == positions).all()


def test_positions_far_out_are_still_a_walk_through_epochs():
    source = Source((40, 60), 16)
    for start in (2**33, LIMIT - 1000):
        first = -(-start // 100) * 100
        where = alone(source).locate(np.arange(first, first + 100))
        assert set(where.epoch.tolist()) == {first // 100}
        assert len(set(zip(where.shard.tolist(), where.row.tolist(), strict=True))) == 100


def test_a_row_that_is_never_drawn_has_no_position():
    stages = (
        Stage(200, (("web", 0.5), ("code", 0.25), ("poems", 0.25))),
        FIRST._replace(until=None),
    )
    order = make(stages)
    poems = order.names.index("poems")
    epochs = np.arange(20)
    found = order.position_of(Location(np.full(20, poems), epochs, 0 * epochs, 0 * epochs))
    assert order.epochs(10_000)["poems"] == 50 / 7
    assert (found[:7] >= 0).all() and (found[8:] == -1).all()
    far = order.position_of(Location(*np.array([[order.names.index("web")], [LIMIT], [0], [0]])))
    assert far.tolist() == [-1]


def test_rows_that_do_not_exist_are_refused():
    order = make()
    for where in ([0, 0, 2, 0], [0, 0, 0, 50], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, -1]):
        with pytest.raises(OrderError, match="source 'code' has no epoch"):
            order.position_of(Location(*np.array(where)[:, None]))
    with pytest.raises(OrderError, match=r"source 3: must be in \[0, 3\)"):
        order.position_of(Location(*np.array([3, 0, 0, 0])[:, None]))
    for position in (-1, LIMIT, 10**20):
        with pytest.raises(OrderError, match=r"must be in \[0, 2\*\*62\)"):
            order.locate(np.array([position]))


def test_the_order_does_not_depend_on_how_positions_are_asked_for():
    order = make()
    whole = np.stack(order.locate(np.arange(3_000)))
    parts = [np.stack(order.locate(np.arange(i, i + 7))) for i in range(0, 3_000, 7)]
    assert (np.concatenate(parts, axis=1)[:, :3_000] == whole).all()
    mixed = np.random.default_rng(0).permutation(3_000)
    assert (np.stack(order.locate(mixed)) == whole[:, mixed]).all()
    assert order.locate(np.arange(0)).row.shape == (0,)


def test_the_order_does_not_depend_on_how_sources_are_listed():
    turned = {name: SOURCES[name] for name in ("poems", "web", "code")}
    weights = [stage._replace(weights=stage.weights[::-1]) for stage in (FIRST, LAST)]
    positions = np.arange(2_500)
    assert np.array_equal(
        make().locate(positions), make(stages=weights, sources=turned).locate(positions)
    )


def test_rows_of_a_window_come_from_a_contiguous_run():
    order = alone(Source((100,) * 10, 50), block_rows=1)
    where = order.locate(np.arange(1000))
    shards = where.shard.reshape(20, 50)
    assert all(len(set(window)) == 1 for window in shards.tolist())
    assert len(set(shards[:, 0].tolist())) == 10
    for rows in where.row.reshape(20, 50):
        assert sorted(rows.tolist()) in (list(range(50)), list(range(50, 100)))
    within = {bytes(rows.tolist()) for rows in where.row.reshape(20, 50) % 50}
    assert len(within) == 20 and bytes(range(50)) not in within


def test_each_epoch_has_an_order_of_its_own():
    order = alone(Source((100,) * 10, 50), block_rows=1)
    first, second = (order.locate(np.arange(e * 1000, e * 1000 + 1000)) for e in (0, 1))
    assert first.shard[::100].tolist() != second.shard[::100].tolist()
    assert np.mean((first.shard == second.shard) & (first.row == second.row)) < 0.02


@pytest.mark.parametrize(
    "source", [Source((100,), 100), Source((1,) * 100, 1)], ids=["rows", "shards"]
)
def test_no_epoch_of_a_seed_is_an_epoch_of_another(source):
    orders = set()
    for seed in (0, 1, 2):
        where = alone(source, seed, block_rows=1).locate(np.arange(300))
        orders |= {epoch.tobytes() for epoch in (where.shard * 100 + where.row).reshape(3, 100)}
    assert len(orders) == 9


def test_sources_of_one_shape_have_orders_of_their_own():
    sources = {"a": Source((50, 50), 100), "b": Source((50, 50), 100)}
    order = Order(sources, [Stage(None, (("a", 1), ("b", 1)))], seed=0, block_rows=2)
    where = order.locate(np.arange(200))
    assert rows_of(where, "a", order).tolist() != rows_of(where, "b", order).tolist()


def test_draws_count_what_locate_yields():
    order = make()
    source = order.locate(np.arange(3_000)).source
    for position in (0, 1, 99, 100, 1_999, 2_000, 2_001, 2_950):
        counted = np.bincount(source[:position], minlength=3)
        assert order.draws(position).tolist() == counted.tolist()
    assert order.draws(2**60).sum() == 2**60


def test_shares_that_are_no_whole_rows_are_kept_over_many_blocks():
    odd = Stage(None, (("web", 1), ("code", 1), ("poems", 0.001)))
    order = make([odd])
    blocks = order.locate(np.arange(400_000)).source.reshape(-1, 100)
    counts = np.stack([np.bincount(block, minlength=3) for block in blocks])
    assert {*counts[:, 0]} == {49, 50} and {*counts[:, 1]} == {0, 1}
    assert abs(counts.sum(axis=0) - 400_000 * np.array([1, 0.001, 1]) / 2.001).max() < 6
    assert (order.draws(400_000) == counts.sum(axis=0)).all()


def test_the_inverse_agrees_where_shares_are_no_whole_rows():
    stages = [Stage(700, (("web", 1), ("code", 1), ("poems", 3e-7)))]
    stages.append(Stage(None, (("web", 1), ("code", 0.3), ("poems", 0.7))))
    order = make(stages, block_rows=7)
    for start in (0, 650, 10**7, 2**40, LIMIT - 10**4):
        positions = np.arange(start, start + 10**4)
        assert (order.position_of(order.locate(positions)) == positions).all()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [Stage(None, (("web", 1), ("code", 1), ("poems", 1e-13)))],
            "stage 0: weight 1e-13 of source 'poems' is 5e-12 rows in a block of 100, too few to "
            "count; raise the weight, or set it to 0.0",
        ),
        (
            [Stage(None, (("web", 1), ("code", 1)))],
            "stage 0 gives source 'poems' 0 weights; give one, 0.0 to leave it out",
        ),
        (
            [Stage(None, (*LAST.weights, ("web", 1)))],
            "stage 0 gives source 'web' 2 weights; give one, 0.0 to leave it out",
        ),
        (
            [FIRST, Stage(None, (*LAST.weights, ("wbe", 1)))],
            "stage 1: no source 'wbe' here; sources: code, poems, web",
        ),
        (
            [Stage(None, (("web", -1), ("code", 1), ("poems", float("nan"))))],
            "stage 0: weights ['web=-1', 'poems=nan']: must be at least 0, one above",
        ),
        (
            [Stage(None, (("web", 0), ("code", 0), ("poems", 0)))],
            "stage 0: weights all 0: must be at least 0, one above",
        ),
        ([FIRST], "the last stage must have no end: until=None"),
        ([], "the last stage must have no end: until=None"),
        ([LAST, LAST], "stage 0 has no end, so stage 1 never comes; set its until"),
        (
            [FIRST, FIRST._replace(until=1_999), LAST],
            "stage 1 is empty: rows 2000 to until=1999, rounded up to whole blocks of 100; "
            "move its end or lower block_rows",
        ),
    ],
)
def test_stages_that_do_not_fit_are_refused(stages, message):
    with pytest.raises(OrderError) as e:
        make(stages)
    assert str(e.value) == message


def test_a_source_without_rows_may_only_be_left_out():
    sources = {"a": Source((10,), 4), "empty": Source((), 4)}
    order = Order(sources, [Stage(None, (("a", 1), ("empty", 0)))], 0, 10)
    assert set(order.locate(np.arange(100)).source.tolist()) == {0}
    with pytest.raises(OrderError, match="source 'empty' has weight 1 but not one row"):
        Order(sources, [Stage(None, (("a", 1), ("empty", 1)))], 0, 10)


def test_golden_order():
    """If this moves, no checkpoint can be resumed in the order it was trained on.

    Change the order only on purpose: raise `order.VERSION`, then put the new values here.
    """
    where = make(seed=7).locate(np.array([0, 1, 2, 1_999, 2_000, 2_001, 10**6, 2**40]))
    assert np.stack(where, axis=1).tolist() == [
        [2, 0, 2, 30],
        [0, 0, 0, 2],
        [2, 0, 2, 49],
        [2, 3, 3, 18],
        [2, 4, 3, 48],
        [0, 10, 1, 13],
        [1, 28515, 0, 1],
        [2, 1095858767, 3, 12],
    ]
