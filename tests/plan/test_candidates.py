"""Layouts of a config on a target: all that the shapes allow, sorted by an estimate."""

from dataclasses import asdict, replace

import pytest

from jaxlm import mesh as mesh_lib
from jaxlm.config import MeshConfig
from jaxlm.plan import candidates, estimate, target
from jaxlm.plan.candidates import POLICIES, divisors, layouts, meshes
from jaxlm.schema import ConfigError
from tests.plan.made_up import CONFIG, TARGET


def test_divisors():
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]


def test_meshes_use_every_device_and_split_the_batch():
    found = list(meshes(CONFIG, TARGET))
    assert len(found) == len(set(found)) == 10  # ordered products of three that make eight
    odd = replace(CONFIG, train=replace(CONFIG.train, batch_size=4, rows_per_device=1))
    assert all(m.data * m.fsdp <= 4 for m in meshes(odd, TARGET))


def test_tensor_stays_inside_a_node_and_data_alone_crosses_slices():
    nodes = list(meshes(CONFIG, target.parse("h100:4x8")))
    assert {m.tensor for m in nodes} == {1, 2, 4, 8} and max(m.fsdp for m in nodes) == 32
    slices = list(meshes(CONFIG, target.parse("v5e:4x4", slices=2)))
    assert {m.data % 2 for m in slices} == {0} and max(m.fsdp * m.tensor for m in slices) == 16


def test_dimensions_that_do_not_divide_are_left_out():
    six = replace(CONFIG, model=replace(CONFIG.model, n_heads=6, n_kv_heads=6, head_dim=128))
    assert {m.tensor for m in meshes(six, TARGET)} == {1, 2}
    for mesh in meshes(six, TARGET):
        mesh_lib.spec(asdict(mesh), ("heads", "embed"), (6, 1024))


def test_layouts_keep_the_global_batch():
    for cfg in layouts(CONFIG, TARGET):
        rows = cfg.mesh.data * cfg.mesh.fsdp * cfg.train.rows_per_device
        assert CONFIG.train.batch_size % rows == 0
        assert replace(cfg, mesh=CONFIG.mesh, train=CONFIG.train, model=CONFIG.model) == CONFIG


def test_the_fastest_comes_first():
    found = candidates.candidates(CONFIG, TARGET)
    assert len(found) == len(list(layouts(CONFIG, TARGET)))
    ranks = [c.rank_s for c in found]
    assert ranks == sorted(ranks) and ranks[0] > 0


def test_overrides_make_the_candidate():
    chosen = next(c for c in candidates.candidates(CONFIG, TARGET) if c.cfg.mesh.tensor == 2)
    said = dict(o.removeprefix("--config.").split("=") for o in chosen.overrides())
    assert said["mesh.tensor"] == "2" and said["model.remat"] == chosen.cfg.model.remat
    assert int(said["train.rows_per_device"]) == chosen.cfg.train.rows_per_device


def test_a_stronger_policy_and_fewer_rows_need_less():
    by = {
        (c.cfg.train.rows_per_device, c.cfg.model.remat): c
        for c in candidates.candidates(CONFIG, TARGET)
        if c.cfg.mesh == MeshConfig(1, 8, 1)
    }
    assert by[1, "full"].needs_less(by[4, "none"]) and not by[4, "none"].needs_less(by[1, "full"])
    assert not by[4, "full"].needs_less(by[1, "none"])
    memory = [by[4, policy].memory_bytes for policy in POLICIES]
    assert memory[0] > memory[1] > memory[2] >= memory[3]
    rows = [by[n, "dots"].memory_bytes for n in (1, 2, 4)]
    assert rows == sorted(rows) and rows[0] < rows[2]


def test_offloaded_activations_leave_no_layout_without_a_policy():
    moved = replace(CONFIG, model=replace(CONFIG.model, offload_activations=True))
    assert "none" not in {cfg.model.remat for cfg in layouts(moved, TARGET)}


def test_no_layout_is_an_error():
    odd = replace(CONFIG, model=replace(CONFIG.model, d_model=1023, head_dim=128))
    odd = replace(odd, train=replace(CONFIG.train, batch_size=3, rows_per_device=None))
    with pytest.raises(ConfigError, match="no mesh of 8 devices splits config"):
        candidates.candidates(odd, TARGET)


def test_state_is_counted_in_bytes():
    """114,304,000 parameters and some norms: 4 bytes, and 8 of AdamW."""
    carried = estimate.state(CONFIG)
    params = 4 * (1024 * 128 * (8 + 4 + 4 + 8) + 3 * 1024 * 2816) + 2 * 32_768 * 1024
    assert carried.params == pytest.approx(4 * params, rel=1e-3)
    assert carried.optimizer == pytest.approx(8 * params, rel=1e-3)
    offloaded = replace(CONFIG, optim=replace(CONFIG.optim, offload=True))
    mesh_shape = {"data": 1, "fsdp": 8, "tensor": 1}
    here, there = (estimate.memory(cfg, mesh_shape, carried) for cfg in (CONFIG, offloaded))
    assert here - there == pytest.approx(carried.optimizer / 8)
