"""What is lost to preemptions: by hand, and at its least where Young's formula says."""

import dataclasses
import math

import pytest

from jaxlm.plan import preemption
from jaxlm.plan.preemption import HOUR, Preemption
from jaxlm.schema import ConfigError

SPOT = Preemption(
    per_day=4,
    checkpoint_bytes=840e9,
    write_bandwidth=10e9,
    stall_s=10,
    commit_s=84,
    restart_s=600,
    interval_s=2 * HOUR,
)


def test_the_share_that_is_lost_by_hand():
    """Every six hours: an hour of work on average, 84 s of writing, 10 minutes to come back."""
    assert math.isclose(SPOT.lost, 10 / 7210 + (3600 + 84 + 600) / 21600)


def test_the_best_interval_loses_least():
    best = SPOT.best_interval_s
    assert math.isclose(best, math.sqrt(2 * 10 * 6 * HOUR))
    lost = [dataclasses.replace(SPOT, interval_s=best * factor).lost for factor in (0.8, 1.0, 1.25)]
    assert lost[1] < min(lost[0], lost[2])
    assert math.isclose(SPOT.best_lost, lost[1]) and SPOT.best_lost < SPOT.lost


def test_no_checkpoint_begins_before_the_last_is_whole():
    slow = dataclasses.replace(SPOT, commit_s=3000)
    assert slow.best_interval_s == 3000


def test_no_more_than_all_is_lost():
    assert dataclasses.replace(SPOT, per_day=1000).lost == 1.0


def test_rates_must_be_rates():
    preemption.check(None, None, None)
    preemption.check(2.0, 1.0, 0.0)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"--preemptions-per-day=.*: must be above 0 and fin"):
            preemption.check(wrong, None, None)
        with pytest.raises(ConfigError, match=r"--write-gbs=.*: must be above 0 and finite"):
            preemption.check(2.0, wrong, None)
    for wrong in (-5.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"--restart-minutes=.*: must be 0 or more, and fin"):
            preemption.check(2.0, None, wrong)


def test_what_is_about_preemptions_needs_their_rate():
    with pytest.raises(ConfigError, match=r"--write-gbs=2: is about .* --preemptions-per-day too"):
        preemption.check(None, 2.0, None)
    with pytest.raises(ConfigError, match="--restart-minutes=5: is about preemptions"):
        preemption.check(None, None, 5.0)
