"""Power and false alarms as the docstring states them, measured on made-up losses."""

import numpy as np
import pytest

from jaxlm.drift import BLOCK, RECENT, TREND, Drift

NOISE, SHIFT = 0.02, 0.01
NEEDED = (TREND + RECENT) * BLOCK


START = 5000
"""Steps before those that are looked at: the curve bends less and less."""


def alarms(losses: np.ndarray) -> list[int]:
    """Indices at which one was raised."""
    drift = Drift()
    found = [drift.push(START + i, loss) for i, loss in enumerate(losses.tolist())]
    return [shift.step - START for shift in found if shift]


def trend(steps: np.ndarray) -> np.ndarray:
    """A loss curve: 2 + 8 / step^0.3."""
    return 2 + 8 * (steps + float(START)) ** -0.3


def test_at_most_one_false_alarm_in_a_hundred_thousand_steps():
    random = np.random.default_rng(0)
    steps = np.arange(1_000_000)
    found = alarms(trend(steps) + random.normal(0, NOISE, len(steps)))
    assert len(found) <= 3  # of 10 allowed: a rate near the limit would fail here often


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shift_of_half_a_deviation_is_flagged_within_500_steps(sign):
    late = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        steps = np.arange(NEEDED + 700 + seed)  # the shift begins anywhere in a block
        losses = trend(steps) + random.normal(0, NOISE, len(steps))
        begin = len(steps) - 500
        losses[begin:] += sign * SHIFT
        found = [step for step in alarms(losses) if step >= begin]
        late += not found
    assert late <= 10  # one sign is late more often: towards it the curve bends


def test_noise_that_lasts_some_steps_is_no_shift():
    """Each step's noise half that of the step before, half new."""
    random = np.random.default_rng(1)
    noise = np.zeros(400_000)
    for i, new in enumerate(random.normal(0, NOISE * 0.75**0.5, len(noise))):
        noise[i] = 0.5 * noise[i - 1] + new
    assert len(alarms(trend(np.arange(len(noise))) + noise)) <= 4  # one in 100,000


def test_single_spikes_are_no_shift():
    random = np.random.default_rng(2)
    losses = 2 + random.normal(0, NOISE, 100_000)
    losses[random.choice(len(losses), 200, replace=False)] += 1.0
    assert alarms(losses) == []


def test_what_is_remembered_does_not_change_while_it_is_written():
    drift = Drift()
    drift.push(1, 2.0)
    memory = drift.memory
    drift.push(2, 3.0)
    assert memory["open"] == [2.0]


def test_what_is_remembered_goes_on_where_it_stopped():
    random = np.random.default_rng(3)
    losses = (2 + random.normal(0, NOISE, NEEDED + 500)).tolist()
    losses[NEEDED:] = [loss + 0.05 for loss in losses[NEEDED:]]
    whole, parts = Drift(), Drift()
    for step, loss in enumerate(losses):
        if step % 7 == 0:
            parts = Drift(parts.memory)
        assert parts.push(step + 1, loss) == whole.push(step + 1, loss)
    shifts = alarms(np.array(losses))
    assert len(shifts) == 1 and NEEDED <= shifts[0] < NEEDED + 150


def test_after_a_stage_edge_it_waits_for_a_new_trend():
    random = np.random.default_rng(4)
    drift = Drift()
    found = []
    for step in range(2 * NEEDED):
        if step == NEEDED:
            drift.forget()
        loss = 2 + (1.0 if step >= NEEDED else 0.0) + random.normal(0, NOISE)
        found.append(drift.push(step + 1, loss))
    assert not any(found)
