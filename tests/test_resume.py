"""Where a start begins, and what it leaves as it was if it is refused."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxlm import resume, run, saving, state, workdir
from jaxlm.checkpoint import Checkpoints
from jaxlm.config import Config, DataConfig, EvaluateConfig, TrainConfig
from jaxlm.data import skips
from jaxlm.integrity import CheckpointError
from jaxlm.run import Beginning, Options, Run
from jaxlm.schema import ConfigError
from tests import tiny

CONFIG = Config(
    model=replace(tiny.MODEL, n_layers=1),
    data=DataConfig(source="synthetic", seq_len=tiny.T),
    train=TrainConfig(batch_size=8, rows_per_device=1, end="100 steps"),
    evaluate=EvaluateConfig(every=None),
)


@contextlib.contextmanager
def prepared(directory: Path, cfg: Config = CONFIG) -> Iterator[Run]:
    found = run.prepare(cfg, directory)
    with jax.set_mesh(found.mesh):
        try:
            yield found
        finally:
            found.checkpoints.close()
            found.snapshots.close()


def save(found: Run, step: int, position: int, seed: int = 5) -> None:
    """A full checkpoint and a snapshot."""
    fresh = state.init(found.step.model, found.step.optimizer, seed, found.where)
    fresh = fresh._replace(position=state.split_position(position))
    notes = run.notes(found, position, {})
    found.checkpoints.save(fresh, step, notes)
    assert found.checkpoints.wait() is None
    found.snapshots.save(saving.snapshot_of(fresh.params), step, notes)
    assert found.snapshots.wait() is None


def begin(directory: Path, cfg: Config = CONFIG, **options) -> Beginning:
    with prepared(directory, cfg) as found:
        return resume.begin(found, Options(**options), lambda line: None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A run with one at step 10, row 80. Not to be written to."""
    directory = tmp_path_factory.mktemp("saved")
    with prepared(directory) as found:
        save(found, 10, 80)
    return directory


# ---- a start that is refused, and one that is not ------------------------------------------------


@pytest.fixture
def again(saved, tmp_path) -> Path:
    """A copy of `saved`, with a snapshot of a step that will be done again."""
    directory = Path(shutil.copytree(saved, tmp_path / "run"))
    snapshots = directory / "checkpoints" / "snapshots"
    shutil.copytree(snapshots / "10", snapshots / "15")
    return directory


def snapshots(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints" / "snapshots").iterdir())


def test_a_refused_start_moves_no_snapshot(again):
    (again / skips.FILE).write_text("[[80, 84]]")
    with pytest.raises(ConfigError, match="which is not whole batches"):
        begin(again)
    assert snapshots(again) == ["10", "15"]
    (again / skips.FILE).unlink()
    assert begin(again).step == 10
    assert snapshots(again) == ["10"]


def test_a_start_says_where_the_run_is(again):
    """Else what an earlier start had said would be taken for its own word."""
    workdir.write_status(again, "stopped", 15, 120, 800, saved=15)
    with pytest.raises(CheckpointError, match="has saved step 15, and now it is not there"):
        begin(again)
    assert workdir.status(again)["state"] == "stopped"
    begin(again, fallback=True)
    found = workdir.status(again)
    assert (found["state"], found["step"], found["position"]) == ("training", 10, 80)
    assert found["saved"] == 10
    begin(again)  # a start killed before its first report is followed by one without the flag


def test_a_run_that_has_gone_back_over_all_that_was_left_is_done(again):
    (again / skips.FILE).write_text('[[80, 800, "00000099-784-spike"]]')
    found = begin(again)
    assert (found.step, found.position) == (10, 800)


# ---- what --allow-change lets through ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("data.sed", "did you mean data.seed? "),
        ("config.data.seed", "did you mean data.seed? "),
        ("tokeniser", "did you mean tokenizer? "),
        ("qqq", ""),
        ("", ""),
    ],
)
def test_a_name_of_no_field_allows_nothing(name, hint):
    with pytest.raises(ConfigError) as e:
        resume.check_names(CONFIG, ("data", name))
    assert str(e.value).startswith(f"--allow-change={name}: no such field; {hint}Give a field as")
    resume.check_names(CONFIG, ("data", "tokenizer", "data.seed", "optim.b1"))


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [("model", "d_ff", 2 * tiny.MODEL.d_ff), ("optim", "name", "muon")],
)
def test_a_change_that_no_checkpoint_fits_is_told_from_damage(again, section, field, value):
    changed = replace(getattr(CONFIG, section), **{field: value})
    cfg = replace(CONFIG, **{section: changed})
    with pytest.raises(ConfigError) as e:
        begin(again, cfg, allow_change=(f"{section}.{field}", "data.seed"))
    assert "full/10: is whole, but cannot be restored with what --allow-change" in str(e.value)
    assert f"  config.{section}.{field}: " in str(e.value) and "data.seed" not in str(e.value)
    assert snapshots(again) == ["10", "15"]


# ---- a new run from the parameters of another ----------------------------------------------------


def embedding(found: Beginning) -> np.ndarray:
    return np.asarray(jax.tree.leaves(found.state.params)[0])


def test_a_run_without_a_checkpoint_goes_on_with_the_parameters_it_began_with(saved, tmp_path):
    other = Path(shutil.copytree(saved, tmp_path / "other"))
    taken = other / "checkpoints" / "full" / "10"
    directory = tmp_path / "run"
    first = begin(directory, init_from=str(other))
    assert workdir.history(directory)[-1].init_from == str(taken)
    with pytest.raises(ConfigError) as e:
        begin(directory)
    assert f"begun with the parameters of {taken}, and has no checkpoint of its" in str(e.value)
    assert f"Give --init-from={taken} again" in str(e.value)
    with pytest.raises(ConfigError, match="was begun with the parameters of"):
        begin(directory, init_from=str(saved))
    with prepared(other) as found:  # which trains on meanwhile
        save(found, 20, 160, seed=1)
    for again in (str(other), str(taken)):
        assert (embedding(begin(directory, init_from=again)) == embedding(first)).all()
    assert [start.init_from for start in workdir.history(directory)] == 3 * [str(taken)]
    shutil.rmtree(taken)
    with pytest.raises(ConfigError, match=f"--init-from={taken}: is no checkpoint"):
        begin(directory, init_from=str(other))


def test_a_run_that_drew_its_parameters_may_begin_again_with_others(saved, tmp_path):
    drawn = begin(tmp_path)
    assert workdir.history(tmp_path)[-1].init_from is None
    taken = begin(tmp_path, init_from=str(saved))
    assert (embedding(taken) != embedding(drawn)).any()


@pytest.mark.parametrize("when", ["verify", "notes", "restore_params"])
@pytest.mark.parametrize("reader", ["begin", "open_trained"])
def test_what_a_run_deletes_while_it_is_read_is_left_for_its_newest(
    saved, tmp_path, monkeypatch, reader, when
):
    other = Path(shutil.copytree(saved, tmp_path / "other"))
    done = getattr(Checkpoints, when)

    def meanwhile(checkpoints: Checkpoints, step: int, *args: Any) -> Any:
        if step == 10:
            monkeypatch.undo()
            with prepared(other) as found:
                save(found, 20, 160, seed=1)
            for kind in ("full", "snapshots"):
                shutil.rmtree(other / "checkpoints" / kind / "10")
        return done(checkpoints, step, *args)

    monkeypatch.setattr(Checkpoints, when, meanwhile)
    if reader == "begin":
        found = begin(tmp_path / "run", init_from=str(other)).state.params
        taken = workdir.history(tmp_path / "run")[-1].init_from
        assert taken is not None and taken.endswith("/20")
    else:
        _, found, step = run.open_trained(CONFIG, other)
        assert step == 20
    with prepared(tmp_path / "fresh") as fresh:
        expected = state.init(fresh.step.model, fresh.step.optimizer, 1, fresh.where).params
    first, second = jax.tree.leaves(found)[0], jax.tree.leaves(expected)[0]
    np.testing.assert_allclose(np.asarray(first), np.asarray(second), rtol=2**-8)  # a snapshot's


def test_a_damaged_checkpoint_that_stays_the_newest_is_told(saved, tmp_path):
    other = Path(shutil.copytree(saved, tmp_path / "other"))
    for kind in ("full", "snapshots"):
        (other / "checkpoints" / kind / "10" / "checksums.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="10: the checkpoint is damaged and will not be used"):
        run.open_trained(CONFIG, other)


def test_a_checkpoint_with_another_name_than_its_step(saved, tmp_path):
    best = shutil.copytree(saved / "checkpoints" / "full" / "10", tmp_path / "best")
    with pytest.raises(ConfigError, match="/best: the directory of a checkpoint is named by its"):
        begin(tmp_path / "run", init_from=str(best))
