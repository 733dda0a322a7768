"""Every schedule at its ends and between; and the clock."""

import itertools
from dataclasses import replace

import pytest

from jaxlm import optim
from jaxlm.clock import crossed, phase
from jaxlm.config import Config, DataConfig, OptimConfig
from jaxlm.optim.schedules import SCHEDULES, Span
from jaxlm.schema import ConfigError

SPAN = Span(warmup=80, decay=200, end=1000)
FINAL = {"cosine": 0.1, "wsd": 0.1, "constant": 1.0}
BATCH = 8


@pytest.fixture(params=SCHEDULES)
def name(request) -> str:
    return request.param


def values(name: str, span: Span) -> list[float]:
    """At the position after each step."""
    return [SCHEDULES[name](p, span, 0.1) for p in range(BATCH, span.end + 1, BATCH)]


def test_exact_at_both_ends(name):
    found = values(name, SPAN)
    assert found[0] == BATCH / SPAN.warmup  # above zero
    assert found[SPAN.warmup // BATCH - 1] == 1.0
    assert found[-1] == FINAL[name]


def test_no_jump_anywhere(name):
    found = values(name, SPAN)
    rise, fall = BATCH / SPAN.warmup, 2 * BATCH / SPAN.decay
    for before, after in itertools.pairwise(found):
        assert -fall < after - before <= rise + 1e-12
    assert max(found) == 1.0 and min(found[10:]) >= FINAL[name]


@pytest.mark.parametrize("span", [Span(0, 0, 1000), Span(0, 1000, 1000), Span(1000, 0, 1000)])
def test_lengths_of_zero_and_of_the_whole_run(name, span):
    found = values(name, span)
    assert all(0 < value <= 1 for value in found)
    if span.warmup:
        assert found[-1] == 1.0  # the warm-up's end is the run's
    if name == "wsd":
        assert found[-1] == (0.1 if span.decay else 1.0)


def test_a_long_run_is_counted_in_integers(name):
    """Past 2**53 a float would not tell one row from the next."""
    end = 2**60
    span = Span(warmup=2**55, decay=2**55, end=end)
    assert SCHEDULES[name](2**55 - 1, span, 0.1) <= 1.0
    assert SCHEDULES[name](2**55, span, 0.1) == 1.0
    assert SCHEDULES[name](end, span, 0.1) == FINAL[name]
    assert SCHEDULES["wsd"](end - 2**55, span, 0.1) == 1.0
    span = Span(warmup=0, decay=100, end=end)
    assert SCHEDULES["wsd"](end - 1, span, 0.0) == 0.01


def test_past_the_end_the_final_value_stays(name):
    for position in (1001, 10**9, 2**63):
        assert SCHEDULES[name](position, SPAN, 0.1) == FINAL[name]


def test_learning_rate_is_the_schedule_times_the_peak(name):
    lr = optim.learning_rate(OptimConfig(schedule=name), 3e-4, SPAN)
    assert lr(SPAN.warmup) == 3e-4
    assert lr(SPAN.end) == 3e-4 * FINAL[name]


def test_an_unknown_schedule_is_refused():
    """With the optimizer: by whoever makes a step, `jaxlm plan` too."""
    with pytest.raises(ConfigError, match=r"config.optim.schedule='linear': must be one of cosine"):
        optim.build(OptimConfig(schedule="linear"))


def test_the_peak_scales_with_the_root_of_the_batch():
    cfg = Config(data=DataConfig(source="synthetic", seq_len=512))
    assert cfg.peak_lr == cfg.optim.lr
    scaled = replace(cfg, optim=OptimConfig(lr=1e-3, lr_reference_batch_tokens=1024.0))
    assert scaled.batch_tokens == 4 * 1024
    assert scaled.peak_lr == 2e-3


def test_phases_begin_at_their_row():
    phases = ((0, 0.1), (100, 0.05), (2**40, 0.0))
    assert [phase(p, phases) for p in (0, 99, 100, 2**40 - 1, 2**40)] == [0.1, 0.1, 0.05, 0.05, 0]
    assert phase(5, ()) == phase(5, ((6, 0.1),)) == 0.0


def test_crossing_a_multiple():
    assert [crossed(10, p, p + 4) for p in (0, 4, 6, 8, 10, 16)] == [
        False, False, True, True, False, True
    ]  # fmt: skip
    assert crossed(10, 0, 95) and not crossed(None, 0, 10**9)
