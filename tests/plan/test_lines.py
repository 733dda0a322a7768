"""A plan as it is read: every figure that was asked for, and the verdict in words."""

import json
from dataclasses import replace
from datetime import date

from jaxlm.plan import lines, prices
from jaxlm.plan.preemption import Preemption
from jaxlm.plan.remedy import Remedy
from tests.plan.made_up import GIB, PLAN, plan

TODAY = date(2026, 12, 1)


def text(of) -> str:
    return "\n".join(lines.lines(of, TODAY))


def test_all_that_was_asked_for_is_there():
    said = text(PLAN)
    for line in (
        "plan of configs/a.py on h100:1x8",
        "  devices      8 on 8 chips: data 1 x fsdp 8 x tensor 1",
        "  batch        32 rows of 2,048; 2 rows a device at once, 2 times a step",
        "  compiled     in 2 s by jax 1.2.3; program 0123456789ab",
        "  needed                             8.001 of 72.00: fits, 89% free",
        "  executed                         124.000   1.240 of the model's, 1.033 of the expected",
        "  reduce-scatter      fsdp                     10       300.0       200.0   1.50",
        "  all                                          30       700.0       600.0   1.17",
        "  compute         0.125   <- the bound",
        "  a step takes at least 0.125 s; 0.2 s without overlap",
        "  MFU at most 80.0% (attention halved; 88.0% with attention whole), 524,288 tokens/s",
        "  days                                2.00              3.20",
        "  $, on demand at 6.155              2,364             3,782",
        "  - all is made up",
    ):
        assert f"{line}\n" in f"{said}\n", line
    assert "spot machines" not in said and "host memory" not in said


def test_what_does_not_fit_says_so_and_what_would():
    over = replace(
        plan(peak_gib=100.0),
        alive=((30 * GIB, "f32[4096,65536] logits"),),
        remedies=(
            Remedy(("loss.vocab_blocks=8",), 80.0 * GIB, False),
            Remedy(("train.rows_per_device=1",), 55.0 * GIB, True),
        ),
    )
    said = text(over)
    assert "100.000 of 72.00: DOES NOT FIT" in said
    assert "       30.000  f32[4096,65536] logits" in said
    fits = "      55.00  fits      --config.train.rows_per_device=1"
    assert fits in said and said.index(fits) < said.index("80.00  too much")


def test_a_refused_program_has_memory_alone():
    refused = replace(PLAN, flops=None, traffic=(), roofline=None, run=None)
    said = text(refused)
    assert "memory of a device" in said
    assert "roofline" not in said and "collectives" not in said and "run:" not in said
    assert refused.rank_s == float("inf")


def test_without_a_price_it_asks_for_one():
    said = text(replace(PLAN, price=None))
    assert "no price is known of this chip: give --price" in said


def test_an_old_price_is_told():
    old = replace(prices.table()["h100"], read=date(2025, 1, 1))
    assert "DAYS AGO: look it up" in text(replace(PLAN, price=old))


def test_spot_machines():
    """10 s an hour, and 4 times a day half an hour, 100 s and 10 minutes."""
    spot = Preemption(4, 840e9, 8e9, 10.0, 100.0, 600.0, 3600.0)
    said = text(replace(PLAN, preemption=spot))
    lost = 60 * (10 / 3610 + (1800 + 100 + 600) / 21600)
    cost = lost / 60 * 8 * 2.464
    assert f"saving every 60 minutes loses {lost:.1f} minutes an hour, ${cost:,.2f}" in said
    days = 2.0 / (1 - lost / 60)
    cost = days * 24 * 8 * 2.464
    assert f"the run takes at least {days:,.2f} days and ${cost:,.0f}, spot, with them" in said


def test_a_run_that_preemptions_undo_has_no_end():
    """A hundred times a day, saved every half an hour."""
    spot = Preemption(100, 840e9, 8e9, 10.0, 100.0, 600.0, 1800.0)
    said = text(replace(PLAN, preemption=spot))
    assert "the run gets nowhere: preemptions undo all that it does" in said
    assert "days with them" not in said


def test_what_does_not_fit_would_take_so_long_if_it_fitted():
    assert "\nrun: " in text(PLAN)
    over = replace(PLAN, fit=PLAN.fit._replace(peak=80 * GIB))
    assert "\nrun, if it fitted: " in text(over)


def test_the_host_is_judged_too():
    held = PLAN.memory._replace(host=250 * GIB)
    fit = PLAN.fit._replace(host=250 * GIB)
    over = replace(PLAN, memory=held, fit=fit)
    assert "250.000 of 200, its share of the host: DOES NOT FIT" in text(over)
    assert not over.fits


def test_json_has_every_figure():
    data = json.loads(json.dumps(PLAN.to_json()))
    assert data["memory"]["parameters"] == GIB and data["fit"]["fits"] is True
    assert data["roofline"]["bound"] == "compute" and data["roofline"]["step_s"] == 0.125
    assert data["price"]["read"] == "2026-09-20"
    assert data["traffic"][0]["axes"] == ["fsdp"] and data["run"]["mfu"] == 0.8
    assert data["digest"] == PLAN.digest and data["notes"] == ["all is made up"]
