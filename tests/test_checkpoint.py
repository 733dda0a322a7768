"""Saved and restored bit by bit; what is unfinished is put aside, what is damaged stops the run."""

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
from typing import Any, NoReturn

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


@pytest.fixture
def unseen(monkeypatch) -> list[str]:
    """Names of files that a disk fails to look for; `exists` then says that they are not there."""
    names: list[str] = []
    stat = os.stat

    def failing(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if Path(os.fsdecode(path) if not isinstance(path, int) else "").name in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", failing)
    exists = os.path.exists
    monkeypatch.setattr(
        os.path, "exists", lambda path: Path(path).name not in names and exists(path)
    )
    return names


def test_what_is_kept_for_ever_is_not_looked_for_in_a_save(train_state, tmp_path, unseen):
    small = train_state._replace(params={}, opt_state=())
    for steps in ((1, 2, 3), (4, 5)):
        with contextlib.closing(Checkpoints(checkpoint.full(tmp_path), Keep(1))) as full:
            for step in steps:
                full.save(small, step, NOTES, for_ever=step == 1)
                assert full.wait() is None
                unseen.append(checkpoint.FOR_EVER)
            unseen.clear()
            assert full.steps() == [1, steps[-1]]


def test_a_marker_that_cannot_be_looked_for_is_not_gone(copy, train_state, unseen):
    before = sorted(p for p in copy.rglob("*"))
    with contextlib.closing(Checkpoints(checkpoint.full(copy), Keep(1))) as full:
        unseen.append(MARKER)
        with pytest.raises(OSError, match="Input/output error"):
            checkpoint.abandon_unfinished(copy)
        full.save(train_state, 7, NOTES)
        assert "Input/output error" in str(full.wait())
        unseen.clear()
    assert [p for p in before if not p.exists()] == []


def test_a_save_whose_start_fails_half_way_is_waited_for(train_state, tmp_path, monkeypatch):
    """Orbax then still writes, and a new try would delete its files under its hands."""
    summing, go_on = threading.Event(), threading.Event()
    write = integrity.write

    def slowly(directory: Path, known: integrity.Sums) -> None:
        summing.set()
        assert go_on.wait(60)
        write(directory, known)

    def fails(*_: object, **__: object) -> NoReturn:
        assert summing.wait(60)
        raise OSError("no answer")

    monkeypatch.setattr(integrity, "write", slowly)
    full = Checkpoints(checkpoint.full(tmp_path), Keep(3))
    with contextlib.closing(full), monkeypatch.context() as broken:
        broken.setattr(full._manager, "_get_old_steps_to_remove", fails)
        full.save(train_state, 7, NOTES)
        time.sleep(0.5)
        assert full.busy
        go_on.set()
        full.wait()
        assert (step_directory(tmp_path) / MARKER).exists()


def test_a_save_that_orbax_declines_is_an_error(copy, train_state):
    checkpoints = Checkpoints(checkpoint.full(copy), Keep(3))
    checkpoints.save(train_state, 5, NOTES)
    assert str(checkpoints.wait()).startswith(
        f"{step_directory(copy, 5)}: the checkpoint could not be saved (Orbax declined to save "
        "step 5; the newest checkpoint is step 7"
    )
    checkpoints.close()


def test_an_unfinished_save_is_put_aside_and_said(copy, capsys):
    """What lies there without the marker is neither resumed from nor lost."""
    unfinished = step_directory(copy, 9)
    shutil.copytree(step_directory(copy), unfinished)
    (unfinished / MARKER).unlink()
    checkpoint.abandon_unfinished(copy)
    (moved,) = (copy / "abandoned").glob("*/full/9")
    assert (moved / CHECKSUMS).exists()
    assert capsys.readouterr().out == (
        f"{unfinished}: a save that was not finished; moved to {moved}\n"
    )
    checkpoints = Checkpoints(checkpoint.full(copy), Keep(3))
    assert checkpoints.latest() == 7
    checkpoints.verify(7)
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
    assert "or go on from the one before it: jaxlm train --fallback" in str(error.value)


def test_every_file_that_holds_state_has_a_checksum(saved):
    directory = step_directory(saved)
    summed = set(json.loads((directory / CHECKSUMS).read_text()))
    there = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    assert there - summed == {CHECKSUMS, MARKER, integrity.REWRITTEN}


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
