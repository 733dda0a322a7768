"""A search: what it compiles next, and what it keeps, with plans that nobody has measured."""

from dataclasses import replace

import jax
import pytest

from jaxlm.plan import candidates, report, search
from jaxlm.plan.search import Search, Tried, choose
from tests.plan.made_up import CONFIG, GIB, TARGET, plan


@pytest.fixture(scope="module")
def found():
    return candidates.candidates(CONFIG, TARGET)


def test_the_fastest_that_may_fit_is_next(found):
    assert choose(found, [], 72 * GIB) is found[0]
    small = sorted(c.memory_bytes for c in found)[2]
    chosen = choose(found, [], small)
    assert chosen is not None and chosen.memory_bytes <= small
    assert chosen is next(c for c in found if c.memory_bytes <= small)
    assert choose(found, [], 1.0) is None


def test_a_first_estimate_above_the_memory_is_forgiven_if_another_follows(found, monkeypatch):
    """The only one to be compiled must fit by its own estimate."""
    least = min(c.memory_bytes for c in found)
    chip = replace(TARGET.chip, memory_bytes=int(least / search.HOPELESS) + 1)
    monkeypatch.setattr(report, "plan", lambda cfg, target, options: plan(peak_gib=0.5))
    for compiles, tried in ((1, 0), (2, 1)):
        small = replace(TARGET, chip=chip)
        result = search.search(CONFIG, small, report.DEFAULTS, compiles, lambda line: None)
        assert len(result.tried) >= tried and bool(result.tried) == bool(tried)


def test_what_was_compiled_corrects_the_estimates(found):
    """The first took three times the estimate: of the others, those of a third may fit."""
    first, *rest = found
    capacity = first.memory_bytes * 4
    tried = [Tried(first, plan(peak_gib=3 * first.memory_bytes / GIB))]
    chosen = choose(rest, tried, capacity)
    assert chosen is next(c for c in rest if 3 * c.memory_bytes <= capacity)


def test_what_needs_no_less_than_a_failure_is_passed_over(found):
    failed = next(c for c in found if c.cfg.train.rows_per_device == 1)
    tried = [Tried(failed, plan(peak_gib=100.0))]
    waiting = [c for c in found if failed.needs_less(c) and c is not failed]
    assert waiting and choose(waiting, tried, 1000 * GIB) is None


def test_the_best_is_the_fastest_that_fits(found):
    tried = (
        Tried(found[0], plan(peak_gib=100.0, step_s=0.1)),
        Tried(found[1], plan(step_s=0.3)),
        Tried(found[2], plan(step_s=0.2)),
    )
    best = Search(len(found), GIB, tried).best
    assert best is tried[2]
    assert Search(len(found), GIB, tried[:1]).best is None


def test_it_compiles_no_more_than_it_may(found, monkeypatch):
    said = []
    monkeypatch.setattr(report, "plan", lambda cfg, target, options: plan(peak_gib=0.5))
    result = search.search(CONFIG, TARGET, report.DEFAULTS, 3, said.append)
    assert len(result.tried) == len(said) == 3
    assert said[0].startswith("compiling 1 of at most 3: data ")
    assert len({t.candidate.cfg for t in result.tried}) == 3


def test_the_table_names_the_winner(found):
    tried = (Tried(found[0], plan(peak_gib=100.0)), Tried(found[1], plan(step_s=0.25)))
    text = list(search.lines(Search(len(found), GIB, tried), 72 * GIB))
    assert text[0] == f"{len(found)} layouts estimated, 2 compiled"
    assert text[2].endswith("OUT OF MEMORY") and text[3].endswith("compute  best")
    assert text[-1] == "the best of them: " + " ".join(found[1].overrides())
    refused = replace(plan(peak_gib=100.0), roofline=None)
    text = list(search.lines(Search(1, GIB, (Tried(found[0], refused),)), 72 * GIB))
    assert text[-1].startswith("none of those compiled fits 72.00 GiB")


def test_one_that_the_compiler_fails_on_leaves_the_others(found, monkeypatch):
    calls = []

    def fail_first(cfg, target, options):
        calls.append(cfg)
        if len(calls) == 1:
            raise jax.errors.JaxRuntimeError("INTERNAL: no such luck. More of it")
        return plan()

    said = []
    monkeypatch.setattr(report, "plan", fail_first)
    result = search.search(CONFIG, TARGET, report.DEFAULTS, 2, said.append)
    assert said[1] == "the compiler fails: INTERNAL: no such luck"
    assert len(calls) == 2 and len(result.tried) == result.failed == 1
    first, *_, last = search.lines(result, 72 * GIB)
    assert first == f"{len(found)} layouts estimated, 1 compiled; the compiler failed on 1 more"
    assert last.startswith("the best of them: ")
    *_, last = search.lines(replace(result, tried=()), 72 * GIB)
    assert last == "none was compiled, since the compiler failed: raise --compiles, to try others"


def test_where_no_estimate_comes_near_the_smallest_is_told(found, monkeypatch):
    small = replace(TARGET, chip=replace(TARGET.chip, memory_bytes=GIB // 1024))
    result = search.search(CONFIG, small, report.DEFAULTS, 2, pytest.fail)
    least = min(c.memory_bytes for c in found) / GIB
    *_, last = search.lines(result, GIB // 1024)
    assert result.tried == ()
    assert last.startswith(f"none was compiled: the smallest estimate is {least:.2f} GiB, against ")
    assert "--compiles" not in last and "take a larger target" in last
