"""A run resumed on another number of devices sees the same rows and ends within rounding."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bench import runs
from jaxlm import workdir as workdirs

pytestmark = pytest.mark.system

HALF = 80
"""Step of the checkpoint to go on from."""
STATE_ATOL = 1e-6
"""Seen: 3e-8. The 40 steps move a parameter by up to 5e-3."""
LOSS_ATOL = 2e-5
"""Seen: 3e-6. Another row in a batch moves its loss by 1e-2."""


def half(whole: Path, workdir: Path) -> Path:
    """A copy of the run as a kill after `HALF` would have left it."""
    shutil.copytree(whole, workdir)
    runs.go_back(workdir, HALF)
    (workdir / "metrics.jsonl").unlink()
    return workdir


@pytest.mark.parametrize(
    ("data", "fsdp", "tensor"), [(1, 2, 1), (2, 1, 2), (1, 1, 4), (2, 2, 2)], ids=str
)
def test_resumed_on_another_mesh(tmp_path, config, whole, data, fsdp, tensor):
    workdir = half(whole, tmp_path / "run")
    mesh = (f"mesh.data={data}", f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}")
    command = runs.train(config, workdir, *mesh)
    code, output = runs.finish(command, tmp_path / "log", devices=data * fsdp * tensor)
    assert code == 0, output
    assert f"resuming at step {HALF}, row {4 * HALF}" in output
    last = workdirs.history(workdir)[-1]
    assert (last.position, last.batch_size, last.devices) == (4 * HALF, 4, data * fsdp * tensor)
    assert last.mesh == [data, fsdp, tensor]

    found, expected = runs.losses(workdir), runs.losses(whole)
    assert list(found) == list(range(HALF + 2, runs.STEPS + 1))  # a start's first step compiles
    differences = [abs(found[step] - expected[step]) for step in found]
    assert max(differences) < LOSS_ATOL
    assert np.std(list(expected.values())[-40:]) > 500 * LOSS_ATOL
    runs.assert_close(runs.state(workdir), runs.state(whole), STATE_ATOL)
