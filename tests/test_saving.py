"""Saves that fail, and are tried again: on a disk, and in a store that stays away for a while."""

import contextlib
import errno
import math
import os
import pwd
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np
import pytest

from bench.stores import Fault, Proxy
from jaxlm import checkpoint, integrity, saving, storage
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.saving import Saver
from jaxlm.schedule import Schedule

NOTES = {"position": 8}
BY_THE_CLOCK = Schedule(None, math.inf)


def tree() -> dict[str, jax.Array]:
    return {"w": jax.device_put(np.arange(2000.0, dtype=np.float32))}


def fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_store_that_stays_away_for_some_tries_costs_these_alone(store: Proxy, monkeypatch):
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))
    monkeypatch.setattr(saving, "LAST_WAITS_S", (0.01, 0.01, 0.01))
    with contextlib.closing(Checkpoints(store.url("away/full"), Keep(2))) as full:
        saver = Saver(full, BY_THE_CLOCK)
        saver.save(tree(), 1, NOTES)
        assert saver.finish() is None
        methods = ("GET", "HEAD", "PUT", "POST", "DELETE")
        away = [Fault("403", times=10_000, method=method) for method in methods]
        store.faults.extend(away)
        for step in (2, 3, 4):
            saver.save(tree(), step, NOTES)
        assert saver.finish() is not None and full.steps() == [1] and saver.begun
        with pytest.raises(Exception, match="the checkpoint could not be saved"):
            saver.save_last(tree(), 5, NOTES)
        store.faults.clear()
        saver.save_last(tree(), 5, NOTES)
        assert full.steps() == [1, 5]
        saver.save_last(tree(), 6, NOTES)
    with contextlib.closing(Checkpoints(store.url("away/full"), Keep(2), read_only=True)) as full:
        assert full.steps() == [5, 6]


def test_a_checkpoint_to_be_kept_for_ever_is_owed_until_one_is_saved(tmp_path, monkeypatch):
    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(1))) as full:
        saver = Saver(full, BY_THE_CLOCK)
        with monkeypatch.context() as broken:
            broken.setattr(integrity, "write", fail)
            saver.save(tree(), 1, NOTES, for_ever=True)
            assert saver.finish() is not None
        for step in (2, 3, 4):  # as the clock asks
            saver.save(tree(), step, NOTES)
        assert saver.finish() is None and full.steps() == [2, 4]
        assert (full.path(2) / checkpoint.FOR_EVER).exists()


def test_waits_stop_to_grow(tmp_path):
    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(1))) as full:
        saver = Saver(full, BY_THE_CLOCK)
        full._before = fail
        saver.save(tree(), 1, NOTES)
        assert full.wait() is not None
        saver._failures = 5000
        assert saver._interval_s() == saving.RETRY_AT_MOST_S


def test_an_old_one_that_cannot_be_deleted_is_said_once(tmp_path, capfd, monkeypatch):
    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(1))) as full:
        saver = Saver(full, BY_THE_CLOCK)
        saver.save(tree(), 1, NOTES)
        assert saver.finish() is None
        protect(monkeypatch, tmp_path / "full" / "1")
        for step in (2, 3, 4):
            saver.save(tree(), step, NOTES)
            assert full.wait() is None and saver._interval_s() == math.inf
            assert full.latest() == step
        assert saver.finish() is None
    said = capfd.readouterr().err
    assert said.count("could not be deleted") == 1 and "could not be saved" not in said
    assert f"{tmp_path}/full: old checkpoints could not be deleted (PermissionError: " in said
    assert sorted(p.name for p in (tmp_path / "full").iterdir()) == ["1", "4"]
    assert (tmp_path / "full" / "1" / checkpoint.MARKER).exists()


def test_a_checkpoint_whose_owner_has_no_name(tmp_path, monkeypatch):
    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(1))) as full:
        full.save(tree(), 1, NOTES, for_ever=True)
        assert full.wait() is None

    def nameless(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nameless)
    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(1))) as full:
        for step in (2, 3):
            full.save(tree(), step, NOTES)
            assert full.wait() is None
        assert full.steps() == [1, 3]


def protect(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """As `chmod -R a-w`, which root would not mind."""

    def guarded(real):
        def do(path, *args, dir_fd=None, **kwargs):
            at = f"/proc/self/fd/{dir_fd}" if dir_fd is not None else Path(path).parent
            if Path(os.path.realpath(at)).is_relative_to(directory):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
            return real(path, *args, dir_fd=dir_fd, **kwargs)

        return do

    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
