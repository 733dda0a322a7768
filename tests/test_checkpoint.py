"""Saved and restored bit by bit; what is unfinished is deleted, what is damaged stops the run."""

import contextlib
import errno
import json
import math
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from orbax.checkpoint._src.multihost import multihost

from jaxlm import checkpoint, cluster, integrity, models, optim, state
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.config import OptimConfig
from jaxlm.errors import EnvironmentProblem
from jaxlm.integrity import CHECKSUMS, CheckpointError
from jaxlm.saving import Saver
from jaxlm.schedule import Schedule
from jaxlm.state import TrainState, join_position, split_position
from jaxlm.workdir import MARKER
from tests import tiny
from tests.tiny import MODEL

MODEL_DEF = models.build(replace(MODEL, n_layers=1))
OPTIMIZER = optim.build(OptimConfig())
NOTES = {"config": {"train": {"seed": 3}}, "data": {"fingerprint": "abc"}}
POSITION = 2**32 + 5


def where(shape: tuple[int, int, int]) -> TrainState:
    return state.shardings(MODEL_DEF, OPTIMIZER, tiny.mesh(shape))


def template(shape: tuple[int, int, int]) -> TrainState:
    return state.abstract(MODEL_DEF, OPTIMIZER, where(shape))


@pytest.fixture(scope="module")
def train_state() -> TrainState:
    """Random in every leaf, on a mesh of 2x2x2."""
    random = np.random.default_rng(0)
    shapes = template((2, 2, 2))
    found = jax.tree.map(lambda s: random.normal(0, 9, s.shape).astype(s.dtype), shapes)
    found = found._replace(step=np.int32(7), position=split_position(POSITION))
    return jax.device_put(found, where((2, 2, 2)))


@pytest.fixture(scope="module")
def saved(train_state, tmp_path_factory) -> Path:
    """A work directory with step 7 in it. Not to be written to."""
    workdir = tmp_path_factory.mktemp("run")
    save(workdir, train_state, [7])
    return workdir


@pytest.fixture
def copy(saved, tmp_path) -> Path:
    """A copy of step 7, to damage."""
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


def save(workdir: Path, train_state: TrainState, steps: list[int], keep: int = 3) -> None:
    checkpoints = Checkpoints(checkpoint.full(workdir), Keep(keep))
    for step in steps:
        checkpoints.save(train_state, step, NOTES)
    checkpoints.close()


def step_directory(workdir: Path, step: int = 7) -> Path:
    return workdir / "checkpoints" / "full" / str(step)


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 8, 1), (1, 1, 1)])
def test_a_state_comes_back_bit_by_bit_on_any_mesh(saved, train_state, shape):
    checkpoints = Checkpoints(checkpoint.full(saved), Keep(3), read_only=True)
    assert checkpoints.latest() == 7
    checkpoints.verify(7)
    assert checkpoints.notes(7) == NOTES
    restored = checkpoints.restore(7, template(shape))
    checkpoints.close()
    tiny.assert_trees_equal(restored, train_state)
    assert isinstance(restored, TrainState)
    assert join_position(restored.position) == POSITION
    for leaf, place in zip(*map(jax.tree.leaves, (restored, where(shape))), strict=True):
        assert leaf.sharding.is_equivalent_to(place, leaf.ndim)


def test_parameters_come_back_alone(saved, train_state):
    checkpoints = Checkpoints(checkpoint.full(saved), Keep(3), read_only=True)
    params = checkpoints.restore_params(7, template((1, 8, 1)).params)
    checkpoints.close()
    tiny.assert_trees_equal(params, train_state.params)
    assert jax.tree.structure(params) == jax.tree.structure(train_state.params)


def test_a_model_with_other_parameters_is_refused(saved):
    checkpoints = Checkpoints(checkpoint.full(saved), Keep(3), read_only=True)
    tied = models.build(replace(MODEL, n_layers=1, tied_embeddings=True))
    other = state.abstract(tied, OPTIMIZER, state.shardings(tied, OPTIMIZER, tiny.mesh((1, 1, 1))))
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(7, other)
    checkpoints.close()
    assert str(error.value).startswith(
        f"{step_directory(saved)}: the checkpoint exists but cannot be read"
    )
    assert "The run stops rather than start anew beside it" in str(error.value)


def test_the_newest_are_kept_and_some_for_ever(train_state, tmp_path):
    small = train_state._replace(params={}, opt_state=())
    checkpoints = Checkpoints(checkpoint.full(tmp_path), Keep(2, every=3))
    for step in range(1, 8):
        checkpoints.save(small, step, NOTES)
    checkpoints.close()
    assert sorted(int(p.name) for p in (tmp_path / "checkpoints/full").iterdir()) == [3, 6, 7]


def test_a_save_that_orbax_declines_is_an_error(copy, train_state):
    checkpoints = Checkpoints(checkpoint.full(copy), Keep(3))
    checkpoints.save(train_state, 5, NOTES)
    assert str(checkpoints.wait()).startswith(
        f"{step_directory(copy, 5)}: the checkpoint could not be saved (Orbax declined to save "
        "step 5; the newest checkpoint is step 7"
    )
    checkpoints.close()


def test_an_unfinished_save_is_deleted_and_said(copy, capsys):
    unfinished = step_directory(copy, 9)
    shutil.copytree(step_directory(copy), unfinished)
    (unfinished / MARKER).unlink()
    checkpoint.clear_unfinished(copy, 7)
    assert not unfinished.exists() and not (copy / "abandoned").exists()
    assert capsys.readouterr().out == f"{unfinished}: a save that was not finished; deleted\n"
    checkpoints = Checkpoints(checkpoint.full(copy), Keep(3))
    assert checkpoints.latest() == 7
    checkpoints.verify(7)
    checkpoints.close()


def test_a_checkpoint_that_has_lost_its_marker_is_kept(copy, capsys):
    """It was whole: perhaps it can be mended."""
    (step_directory(copy) / MARKER).unlink()
    checkpoint.clear_unfinished(copy, 7)
    (moved,) = (copy / "abandoned").glob("unmarked-*/full/7")
    assert (moved / CHECKSUMS).exists() and not step_directory(copy).exists()
    assert f"has lost its marker; moved to {moved}\n" in capsys.readouterr().out


def test_what_somebody_has_put_beside_checkpoints_is_left_alone(copy):
    full = copy / "checkpoints" / "full"
    shutil.copytree(full / "7", full / "7.bad")
    shutil.copytree(full / "7", full / "old" / "6")
    checkpoint.clear_unfinished(copy, None)
    assert (full / "7.bad" / MARKER).exists() and (full / "old" / "6" / MARKER).exists()
    assert checkpoint.newest(checkpoint.home(copy)) == checkpoint.full(copy) / "7"


def test_what_cannot_be_looked_for_is_not_taken_for_absent(copy):
    """Or the newest checkpoint would be deleted as unfinished, and one for ever as another."""
    for name in (MARKER, checkpoint.FOR_EVER):
        victim = step_directory(copy) / name
        victim.unlink(missing_ok=True)
        victim.symlink_to(victim.name)  # too many levels of symbolic links
    with pytest.raises(EnvironmentProblem, match=r"cannot be looked for .*symbolic links"):
        checkpoint.clear_unfinished(copy, None)
    (step_directory(copy) / MARKER).unlink()
    (step_directory(copy) / MARKER).touch()
    with pytest.raises(EnvironmentProblem, match=f"{checkpoint.FOR_EVER}: cannot be looked for"):
        Checkpoints(checkpoint.full(copy), Keep(3))
    assert (step_directory(copy) / CHECKSUMS).exists()


def test_what_is_kept_for_ever_is_known_without_asking(copy, train_state):
    """The question comes in the middle of a save, when others wait."""
    small = train_state._replace(params={}, opt_state=())
    (step_directory(copy) / checkpoint.FOR_EVER).touch()
    checkpoints = Checkpoints(checkpoint.full(copy), Keep(1))
    (step_directory(copy) / checkpoint.FOR_EVER).unlink()
    checkpoints.save(small, 8, NOTES, for_ever=True)
    for step in (9, 10):
        checkpoints.save(small, step, NOTES)
    checkpoints.close()
    assert sorted(p.name for p in (copy / "checkpoints/full").iterdir()) == ["10", "7", "8"]
    assert (step_directory(copy, 8) / checkpoint.FOR_EVER).exists()


def test_an_old_checkpoint_that_cannot_be_deleted_fails_no_save(train_state, tmp_path, capsys):
    small = train_state._replace(params={}, opt_state=())
    checkpoints = Checkpoints(checkpoint.full(tmp_path), Keep(1))
    checkpoints.save(small, 1, NOTES)
    checkpoints.wait()

    def refuse(steps: list[int]) -> None:
        raise PermissionError(13, "Permission denied", str(step_directory(tmp_path, steps[0])))

    checkpoints._delete = refuse
    for step in (2, 3):
        checkpoints.save(small, step, NOTES)
        assert checkpoints.wait() is None
        assert checkpoints.latest() == step and checkpoints.cost is not None
    checkpoints.close()
    said = capsys.readouterr().err
    assert "full: old checkpoints could not be deleted (PermissionError: [Errno 13]" in said
    checkpoints = Checkpoints(checkpoint.full(tmp_path), Keep(1))
    checkpoints.save(small, 4, NOTES)
    assert checkpoints.wait() is None
    checkpoints.close()
    assert [p.name for p in (tmp_path / "checkpoints/full").iterdir()] == ["4"]


def test_a_save_whose_start_fails_half_way_has_ended_when_it_is_said_to(
    train_state, tmp_path, monkeypatch
):
    """Orbax's own thread still writes then; the next try would delete what it writes to."""
    checkpoints = Checkpoints(checkpoint.full(tmp_path), Keep(1))
    written = threading.Event()
    write = integrity.write

    def slowly(directory: Path, known: integrity.Sums) -> None:
        time.sleep(1.0)
        write(directory, known)
        written.set()

    def fail() -> list[int]:
        raise RuntimeError("half-way")

    monkeypatch.setattr(integrity, "write", slowly)
    monkeypatch.setattr(checkpoints._manager, "_get_old_steps_to_remove", fail)
    checkpoints.save(train_state, 1, NOTES)
    assert checkpoints.busy
    checkpoints.wait()
    assert written.is_set() and not checkpoints.busy
    monkeypatch.undo()
    checkpoints.discard_failed()
    checkpoints.save(train_state, 2, NOTES)
    assert checkpoints.wait() is None and checkpoints.latest() == 2
    checkpoints.verify(2)
    checkpoints.close()


def test_no_directory_to_read_is_an_error_and_makes_none(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoints there; has a run started\?"):
        Checkpoints(tmp_path / "full", Keep(3), read_only=True)
    assert list(tmp_path.iterdir()) == []


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip_a_bit, "does not match its checksum"),
        (truncate, "does not match its checksum"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_damaged_file_is_named_and_stops_the_run(copy, damage, problem):
    directory = step_directory(copy)
    files = json.loads((directory / CHECKSUMS).read_text())
    largest = max(files, key=lambda name: (directory / name).stat().st_size)
    damage(directory / largest)
    with pytest.raises(CheckpointError) as error:
        integrity.verify(directory)
    assert str(error.value).startswith(
        f"{directory}: the checkpoint is damaged and will not be used:\n  {largest}: {problem}\n"
    )
    assert "or use the one before it (to go on with its run: jaxlm train --fallback)" in str(
        error.value
    )


def test_every_file_that_holds_state_has_a_checksum(saved):
    directory = step_directory(saved)
    summed = set(json.loads((directory / CHECKSUMS).read_text()))
    there = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    assert there - summed == {CHECKSUMS, MARKER, integrity.REWRITTEN}


@pytest.mark.parametrize("which", ["checksums", "largest"])
def test_a_file_that_cannot_be_read_is_not_called_damaged(copy, which):
    """With `--fallback` a checkpoint that is whole would be moved away."""
    directory = step_directory(copy)
    files = json.loads((directory / CHECKSUMS).read_text())
    largest = max(files, key=lambda name: (directory / name).stat().st_size)
    victim = directory / (CHECKSUMS if which == "checksums" else largest)
    victim.unlink()
    victim.symlink_to(victim.name)  # too many levels of symbolic links
    with pytest.raises(EnvironmentProblem, match=r"cannot be read .*symbolic links"):
        integrity.verify(directory)


@pytest.mark.parametrize("text", [None, "{", "", "[]", "{}"])
def test_a_checkpoint_without_its_checksums_is_damaged(copy, text):
    path = step_directory(copy) / CHECKSUMS
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CheckpointError, match=r"will not be used:\n  checksums.json: "):
        integrity.verify(step_directory(copy))


def test_checksums_that_cannot_be_written_are_an_error_of_the_save(
    tmp_path, train_state, monkeypatch
):
    monkeypatch.setattr(integrity, "CHECKSUMS", "no/such/directory.json")
    checkpoints = Checkpoints(checkpoint.full(tmp_path), Keep(3))
    checkpoints.save(train_state, 1, NOTES)
    assert "full/1: the checkpoint could not be saved (" in str(checkpoints.wait())
    assert checkpoints.latest() is None


def test_a_save_that_failed_succeeds_at_the_next_try(train_state, tmp_path, monkeypatch):
    """Orbax keeps what went wrong for each thread that asks: it must not meet the next try."""
    full = Checkpoints(checkpoint.full(tmp_path), Keep(3))
    saver = Saver(full, Schedule(None, math.inf))
    with contextlib.closing(full):
        with monkeypatch.context() as broken:
            broken.setattr(integrity, "write", raise_full)
            saver.save(train_state, 7, NOTES)
            problem = saver.finish()
        assert problem is not None and "No space left" in str(problem)
        assert not saver.begun and full.latest() is None
        saver.save(train_state, 7, NOTES)
        assert saver.finish() is None
        assert saver.begun and full.latest() == 7


def test_a_run_that_is_no_longer_alone_deletes_no_unfinished_save(train_state, tmp_path):
    """One that stood still for long, and whose directory another run has taken over."""

    def overtaken() -> None:
        raise EnvironmentProblem("another run is there")

    full = Checkpoints(checkpoint.full(tmp_path), Keep(3), before_commit=overtaken)
    (full.path(7) / "state").mkdir(parents=True)
    with contextlib.closing(full):
        full.save(train_state, 7, NOTES)
        assert "another run is there" in str(full.wait())
        full.discard_failed()
        assert (full.path(7) / "state").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_save_counts_once_it_is_whole(train_state, tmp_path, monkeypatch, fails):
    """A run says which checkpoint it has, and one that was killed is held to that."""
    summing, go_on = threading.Event(), threading.Event()

    def slowly(directory: Path, known: integrity.Sums) -> None:
        summing.set()
        assert go_on.wait(60)
        raise_full(directory, known) if fails else write(directory, known)

    write = integrity.write
    monkeypatch.setattr(integrity, "write", slowly)
    full = Checkpoints(checkpoint.full(tmp_path), Keep(3))
    with contextlib.closing(full):
        full.save(train_state, 7, NOTES)
        assert summing.wait(60) and full.busy
        assert (full.latest(), full.steps()) == (None, [])
        go_on.set()
        assert (full.wait() is not None) == fails
        assert full.steps() == ([] if fails else [7])
        if fails:
            full.discard_failed()
            assert full.steps() == []


def test_what_fails_after_the_commit_is_no_failed_save(train_state, tmp_path, monkeypatch):
    full = Checkpoints(checkpoint.full(tmp_path), Keep(3))
    saver = Saver(full, Schedule(None, math.inf))
    with contextlib.closing(full):
        saver.save(train_state, 7, NOTES)
        assert full.wait() is None
        monkeypatch.setattr(full, "wait", lambda: EnvironmentProblem("an old one stays"))
        assert saver.finish() is None
        assert full.latest() == 7


def test_orbax_gives_its_barriers_up_in_our_time(monkeypatch):
    """It has no option for it, so we set what it calls its own: an upgrade may do away with it."""
    monkeypatch.setattr(multihost, "_DEFAULT_BARRIER_TIMEOUT", 300)  # put back in the end
    monkeypatch.setattr(cluster, "_members", cluster._members._replace(restore_s=6.5))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    options = checkpoint._barriers("full")
    waits_ms = []

    def barrier(*, key: str, timeout_ms: int) -> None:
        waits_ms.append(timeout_ms)

    assert options.active_processes == {0, 1}
    multihost.sync_global_processes(
        "orbax", processes=options.active_processes, barrier_sync_fn=barrier
    )
    assert waits_ms == [7000]
    assert multihost.coordination_timeout() == 7


def raise_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
