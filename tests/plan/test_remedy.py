"""What would fit: changes that keep batch and mesh, and estimates that go the right way."""

from dataclasses import replace

import pytest

from jaxlm.plan import remedy
from jaxlm.plan.remedy import remedies
from tests.plan.made_up import CONFIG

GIB = 2**30
MESH = {"data": 1, "fsdp": 8, "tensor": 1}
ROOMY = replace(
    CONFIG,
    model=replace(CONFIG.model, remat="none"),
    train=replace(CONFIG.train, rows_per_device=4),
)


def test_each_change_alone_takes_less():
    found = remedies(ROOMY, MESH, 90 * GIB, 88 * GIB)
    assert [r.overrides for r in found] == [
        ("train.rows_per_device=2",),
        ("model.remat=dots",),
        ("loss.vocab_blocks=8",),
        ("optim.offload=true",),
    ]  # activations wait in host memory only where a policy chooses them
    assert all(r.bytes <= 90 * GIB for r in found)
    assert found[0].fits and found[0].bytes < 60 * GIB


def test_where_none_is_enough_several_are():
    found = remedies(ROOMY, MESH, 90 * GIB, 20 * GIB)
    *single, both = found
    assert not any(r.fits for r in single) and both.fits
    assert both.overrides[0] == "train.rows_per_device=1"
    assert both.overrides[1].startswith("model.remat=")


def test_where_all_are_not_enough_it_says_how_far_they_go():
    *_, last = remedies(ROOMY, MESH, 90 * GIB, GIB / 100)
    assert not last.fits and "model.offload_activations=true" in last.overrides
    assert "loss.vocab_blocks=8" in last.overrides and "optim.offload=true" in last.overrides


def test_a_config_that_does_it_all_has_only_its_rows_left():
    lean = replace(
        CONFIG,
        model=replace(CONFIG.model, offload_activations=True),
        loss=replace(CONFIG.loss, vocab_blocks=8),
        optim=replace(CONFIG.optim, offload=True),
    )
    first, *_ = remedies(lean, MESH, 90 * GIB, 80 * GIB)
    assert first.overrides == ("train.rows_per_device=1",)
    one_row = replace(lean, train=replace(lean.train, rows_per_device=1))
    (nothing,) = remedies(one_row, MESH, 90 * GIB, 80 * GIB)
    assert nothing.overrides == () and not nothing.fits


def test_what_fits_comes_first():
    found = [remedy.Remedy(("a=1",), 9 * GIB, False), remedy.Remedy(("b=2", "c=3"), GIB, True)]
    _, first, second = remedy.lines(found)
    assert first.endswith("1.00  fits      --config.b=2 --config.c=3")
    assert second.endswith("9.00  too much  --config.a=1")


@pytest.mark.parametrize("change", remedy.CHANGES)
def test_a_change_is_made_but_once(change):
    """Until there is nothing left to change: no loop goes on for ever."""
    cfg, times = ROOMY, 0
    while after := change(cfg, MESH):
        (_, cfg), times = after, times + 1
    assert times <= 3
