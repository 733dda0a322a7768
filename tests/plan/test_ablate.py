"""Ablations: pairs that differ in one thing, each program compiled once."""

from dataclasses import replace

import jax
import pytest

from jaxlm.plan import ablate, report
from jaxlm.plan.ablate import TECHNIQUES, Ablation
from jaxlm.schema import ConfigError
from tests.plan.made_up import CONFIG, PLAN, TARGET, plan


def run(monkeypatch, compile_) -> tuple[list[Ablation], list[str]]:
    said: list[str] = []
    monkeypatch.setattr(report, "plan", lambda cfg, target, options: compile_(cfg))
    return list(ablate.ablate(CONFIG, TARGET, report.DEFAULTS, said.append, PLAN)), said


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda t: t.name)
def test_a_technique_changes_one_field(technique):
    without, using = technique.without(CONFIG), technique.using(CONFIG)
    sections = [
        name
        for name in ("model", "loss", "optim", "mesh", "train", "data")
        if getattr(without, name) != getattr(using, name)
    ]
    assert len(sections) == 1 and CONFIG in (without, using)


def test_fsdp_is_held_against_replicas_on_as_many_devices():
    mesh = TECHNIQUES[1].without(CONFIG).mesh
    assert (mesh.data, mesh.fsdp, mesh.tensor) == (8, 1, 1)


def test_each_program_is_compiled_once(monkeypatch):
    """The config itself is known; its seven others are not."""
    ablations, said = run(monkeypatch, lambda cfg: plan(peak_gib=16.0))
    assert len(ablations) == 7 and len(said) == 7
    by = {a.technique: a for a in ablations}
    assert by["fsdp (ZeRO-3)"].using is PLAN and by["gradient checkpointing"].using is PLAN
    assert by["loss in blocks"].without is PLAN
    saved = by["gradient checkpointing"].saved
    assert saved is not None and saved == pytest.approx(0.5, abs=1e-3)
    assert by["fused attention"].cost(lambda p: p.rank_s) == pytest.approx(
        PLAN.rank_s / plan().rank_s
    )


def test_what_cannot_be_compiled_says_why(monkeypatch):
    def refuse(cfg):
        if cfg.model.offload_activations:
            raise ConfigError("config.model.offload_activations=True: no")
        return plan()

    ablations, _ = run(monkeypatch, refuse)
    assert ablations[-1].using is None and ablations[-1].saved is None
    text = list(ablate.lines(ablations))
    assert text[-1].endswith("config.model.offload_activations=True: no")


def test_one_that_the_compiler_fails_on_leaves_the_others(monkeypatch):
    def fail(cfg):
        if cfg.model.compute_dtype == "float32":
            raise jax.errors.JaxRuntimeError("INTERNAL: no such luck. More of it")
        return plan()

    ablations, _ = run(monkeypatch, fail)
    (failed,) = [a for a in ablations if a.without is None]
    assert failed.technique == "bfloat16 compute"
    assert failed.reason == "the compiler fails: INTERNAL: no such luck"


def test_the_table_stands_beside_the_textbook(monkeypatch):
    ablations, _ = run(monkeypatch, lambda cfg: plan(peak_gib=100.0))
    text = list(ablate.lines(ablations))
    assert text[1].split() == [
        "gradient", "checkpointing", "100.00", "OOM", "8.00", "92%", "40%",
        "x1.00", "x0.80", "x1.00", "x1.04",
    ]  # fmt: skip
    assert [line.split()[-5] for line in text[1:5]] == ["40%", "60%", "50%", "30%"]


def test_a_config_that_leaves_a_size_of_the_mesh_open_is_the_one_that_was_planned(monkeypatch):
    monkeypatch.setattr(report, "plan", lambda cfg, target, options: plan())
    rest = replace(CONFIG, mesh=replace(CONFIG.mesh, fsdp=-1))
    said: list[str] = []
    list(ablate.ablate(rest, TARGET, report.DEFAULTS, said.append, PLAN))
    assert len(said) == 7
