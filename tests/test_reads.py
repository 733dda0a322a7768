"""A read that fails ends the others, and Orbax still needs to be told so."""

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from orbax.checkpoint._src import asyncio_utils

from jaxlm import reads
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.integrity import CheckpointError

type Run = Callable[[Coroutine[Any, Any, Any]], Any]


def ended(run: Run) -> list[str]:
    """Which of the others have ended when `run` says that one has failed."""
    found = []

    async def fail() -> None:
        raise OSError("one failed")

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as e:
            raise ValueError("was cancelled") from e  # as Orbax says it
        finally:
            found.append(name)

    async def all_of_them() -> None:
        thread = asyncio.to_thread(lambda: found.append("thread"))
        await asyncio.gather(thread, wait("one"), wait("other"), fail())

    with pytest.raises(OSError, match="one failed"):
        run(all_of_them())
    return sorted(found)


def test_what_fails_ends_the_others(monkeypatch):
    assert ended(reads.run) == ["one", "other", "thread"]
    monkeypatch.setattr(asyncio_utils, "_run_sync_via_new_loop", None)
    reads.prepare()
    assert ended(asyncio_utils.run_sync) == ["one", "other", "thread"]


def test_what_comes_too_late_is_not_heard():
    """tensorstore tells a loop of a read that was cancelled as it ended."""
    loops = []

    async def fail() -> None:
        loops.append(asyncio.get_running_loop())
        raise OSError("one failed")

    with pytest.raises(OSError, match="one failed"):
        reads.run(fail())
    assert loops[0].is_closed()
    loops[0].call_soon_threadsafe(lambda: None)


def test_orbax_leaves_them():
    """Where it no longer does, `jaxlm.reads` is needless."""
    spec = importlib.util.spec_from_file_location("as_it_comes", asyncio_utils.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loops, new = [], asyncio.new_event_loop

    def run(work: Coroutine[Any, Any, Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "new_event_loop", lambda: loops.append(new()) or loops[-1])
            module.run_sync(work)

    left = ended(run)
    assert "one" not in left and "other" not in left
    (loop,) = loops
    for task in asyncio.all_tasks(loop):
        task.get_coro().close()


def test_a_checkpoint_that_does_not_fit_leaves_nothing(tmp_path: Path, capfd):
    """Many arrays, of which one is of another shape."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    tree = {f"{n}": jax.device_put(np.full((64, 64), n, np.float32), place) for n in range(60)}
    with contextlib.closing(Checkpoints(tmp_path, Keep(1))) as checkpoints:
        checkpoints.save({"params": tree}, 1, {})
        assert checkpoints.wait() is None
        fits = dict.fromkeys(tree, jax.ShapeDtypeStruct((64, 64), np.float32, sharding=place))
        wrong = fits | {"30": jax.ShapeDtypeStruct((64, 65), np.float32, sharding=place)}
        with pytest.raises(CheckpointError, match="not compatible with the stored shape"):
            checkpoints.restore_params(1, wrong)
        restored = checkpoints.restore_params(1, fits)
    assert all((np.asarray(restored[name]) == int(name)).all() for name in tree)
    assert "Traceback" not in capfd.readouterr().err
