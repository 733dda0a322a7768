"""Snapshots, new runs from them, and going back to an older checkpoint."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bench import runs
from jaxlm import checkpoint
from jaxlm import workdir as workdirs

SHORT = ("train.end=40 steps", "evaluate.every=None", "model.dropout=()")


def finish(command: list[str], workdir: Path) -> str:
    code, output = runs.finish(command, workdir.with_suffix(".log"))
    assert code == 0, output
    return output


@pytest.fixture(scope="module")
def origin(config, tmp_path_factory) -> Path:
    """A run with snapshots; the newest one is older than its last checkpoint."""
    workdir = tmp_path_factory.mktemp("origin") / "run"
    more = ("checkpoint.snapshot_every=15 steps", "checkpoint.at=(('10 steps'),)")
    finish(runs.train(config, workdir, *SHORT, *more, "checkpoint.keep=1"), workdir)
    return workdir


def test_the_first_save_is_a_full_one(config, tmp_path):
    """A run that is killed behind its first snapshot has something to go on from."""
    more = ("checkpoint.snapshot_every=6 steps", "train.end=10 steps", "checkpoint.keep=9")
    finish(runs.train(config, tmp_path / "run", *SHORT, *more), tmp_path / "run")
    assert snapshots(tmp_path / "run") == [6] and runs.committed(tmp_path / "run") == [6, 10]


def snapshots(workdir: Path) -> list[int]:
    found = checkpoint.snapshots(workdir).glob(f"*/{workdirs.MARKER}")
    return sorted(int(marker.parent.name) for marker in found)


def test_snapshots_beside_checkpoints_and_a_chosen_moment_for_ever(origin):
    assert snapshots(origin) == [15, 30]
    assert runs.committed(origin) == [10, 40]  # 20 has gone: one is kept
    size = lambda path: sum(p.stat().st_size for p in Path(path).rglob("*") if p.is_file())  # noqa: E731
    full = size(checkpoint.full(origin) / "40" / "state")
    assert size(checkpoint.snapshots(origin) / "30" / "state") < full / 4


@pytest.mark.parametrize("kind", ["snapshot", "run"])
def test_a_new_run_from_the_parameters_of_another(origin, config, tmp_path, kind):
    """Fresh optimizer and position; the command may be given again."""
    path = checkpoint.snapshots(origin) / "30" if kind == "snapshot" else origin
    command = runs.train(config, tmp_path / "run", *SHORT, "train.end=3 steps", "optim.lr=1e-9")
    output = finish([*command, f"--init-from={path}"], tmp_path / "run")
    taken = path if kind == "snapshot" else checkpoint.full(origin) / "40"
    assert f"parameters from {taken}" in output and "training from step 0 to 3" in output
    assert workdirs.history(tmp_path / "run")[0].init_from == str(taken)
    state = runs.state(tmp_path / "run", 3)
    name = "['params']['head']['kernel']"
    expected = runs.state(origin, 40)[name]
    if kind == "snapshot":
        assert np.abs(state[name] - expected).max() < 0.1
    else:
        np.testing.assert_allclose(state[name], expected, atol=1e-6)
    again = finish([*command, f"--init-from={path}"], tmp_path / "run")
    assert "complete at step 3" in again


def test_a_snapshot_is_looked_at_but_not_resumed(origin, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(origin, workdir)
    shutil.rmtree(checkpoint.full(workdir))
    (workdir / "status.json").unlink()
    code, output = runs.finish(runs.train(config, workdir, *SHORT), tmp_path / "log")
    assert code == 2
    newest = checkpoint.snapshots(workdir) / "30"
    assert f"{newest}: is a snapshot, parameters alone, and cannot be resumed" in output
    assert f"--init-from={newest}" in output


def test_a_missing_marker_stops_the_run_and_fallback_goes_on(origin, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(origin, workdir)
    (checkpoint.full(workdir) / "40" / workdirs.MARKER).unlink()
    command = runs.train(config, workdir, *SHORT)
    code, output = runs.finish(command, tmp_path / "refused.log")
    assert code == 2
    assert "full/40: this run has saved step 40, and now it is not there" in output
    assert (*(workdir / "abandoned").glob("*/full/40"),) != ()  # put aside, not lost
    assert runs.committed(workdir) == [10]
    again = [*command, "--fallback", "--config.checkpoint.snapshot_every=15 steps"]
    output = finish(again, workdir)
    assert "resuming at step 10" in output and "could not be saved" not in output
    assert snapshots(workdir) == [15, 30]  # made again; the old ones are put aside
    assert len(list((workdir / "abandoned").glob("done-again-*/snapshots/*"))) == 2
    runs.assert_same(runs.state(workdir, 40), runs.state(origin, 40))


def test_a_damaged_checkpoint_and_the_one_before_it(origin, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(origin, workdir)
    files = [p for p in Path(checkpoint.full(workdir) / "40").rglob("*") if p.is_file()]
    victim = max(files, key=lambda p: p.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-7])
    command = runs.train(config, workdir, *SHORT)
    code, output = runs.finish(command, tmp_path / "refused.log")
    assert code == 2 and "jaxlm train --fallback" in output
    assert runs.committed(workdir) == [10, 40]  # nothing was touched
    output = finish([*command, "--fallback"], workdir)
    assert "moved to" in output and "resuming at step 10" in output
    runs.assert_same(runs.state(workdir, 40), runs.state(origin, 40))


def test_a_fixed_field_may_change_if_it_is_named(origin, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(origin, workdir)
    command = runs.train(config, workdir, *SHORT, "train.end=42 steps", "data.seed=5")
    code, output = runs.finish(command, tmp_path / "refused.log")
    assert code == 2 and "config.data.seed: 0 -> 5" in output and "--allow-change=FIELD" in output
    output = finish([*command, "--allow-change=data.seed", "--allow-change=data"], workdir)
    assert "config.data.seed has changed from 0 to 5" in output
    changed = [name for name, _, _ in workdirs.history(workdir)[-1].changed]
    assert changed == ["data.seed", "train.end", "data"]
