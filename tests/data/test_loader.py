"""Batches: the right rows on the right devices, from a thread that fails loudly and goes away."""

import gc
import os
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
from jax.sharding import NamedSharding

from bench.small_corpus import make_corpus
from jaxlm.data.loader import DEPTH, Loader
from jaxlm.data.manifest import ManifestError
from jaxlm.data.skips import Skips
from jaxlm.data.synthetic import SyntheticHeldOut, SyntheticRows
from jaxlm.schema import ConfigError
from launch.local import free_port
from tests.data import read_batches

B, T = 16, 32


def shard(data: int = 2, fsdp: int = 2, tensor: int = 2) -> NamedSharding:
    """Rows over data and fsdp, alike over tensor."""
    return read_batches.sharding((data, fsdp, tensor), (0, 1, 2))


@pytest.fixture
def rows() -> SyntheticRows:
    return SyntheticRows(seed=0, seq_len=T, vocab_size=300)


class Slow(SyntheticRows):
    """Takes its time, counts what it was asked for, and cannot read position `broken`."""

    def __init__(self, seconds: float = 0.0, broken: int | None = None):
        super().__init__(seed=0, seq_len=T, vocab_size=300)
        self.seconds, self.broken, self.asked = seconds, broken, 0

    def rows(self, positions: np.ndarray) -> np.ndarray:
        self.asked += 1
        time.sleep(self.seconds)
        if self.broken is not None and self.broken in positions:
            raise ManifestError(f"row {self.broken} is broken")
        return super().rows(positions)


def wait_until_asked(rows: Slow, batches: int) -> None:
    """Until the thread has read so many."""
    deadline = time.monotonic() + 60
    while rows.asked < batches and time.monotonic() < deadline:
        time.sleep(0.01)


def loader_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(("jaxlm-loader", "grain"))]


@pytest.mark.parametrize("mesh", [(1, 1, 1), (8, 1, 1), (2, 2, 2), (1, 4, 2), (1, 1, 8)])
def test_batches_follow_each_other_with_their_rows_on_their_devices(rows, mesh):
    with Loader(rows, shard(*mesh), B, start=32, end=96) as loader:
        batches = list(loader)
    assert [(b.position, b.next_position) for b in batches] == [
        (32, 48), (48, 64), (64, 80), (80, 96)
    ]  # fmt: skip
    for batch in batches:
        expected = rows.rows(np.arange(batch.position, batch.next_position))
        assert batch.rows_BT.dtype == np.uint16 and batch.rows_BT.shape == (B, T + 1)
        for part in batch.rows_BT.addressable_shards:
            assert np.asarray(part.data).tobytes() == expected[part.index].tobytes()


def test_a_batch_does_not_depend_on_where_the_loader_started(rows):
    with Loader(rows, shard(), B, 0, 160) as first, Loader(rows, shard(), B, 96, 160) as second:
        from_start = {b.position: np.asarray(b.rows_BT) for b in first}
        for batch in second:
            assert (np.asarray(batch.rows_BT) == from_start[batch.position]).all()


@pytest.mark.parametrize("mesh", [(1, 1, 1), (2, 2, 2)])
def test_skipped_rows_are_in_no_batch(rows, mesh):
    """Windows inside a batch, over whole batches, between two, and up to the end."""
    skips = Skips([[3, 7], [30, 70], [86, 90], [102, 110]])
    left = [p for p in range(102) if not (3 <= p < 7 or 30 <= p < 70 or 86 <= p < 90)]
    del left[-6:]  # 48 are left
    end = left[-1] + 1
    with Loader(rows, shard(*mesh), B, 0, end, skips) as loader:
        batches = list(loader)
    assert np.concatenate([b.positions_B for b in batches]).tolist() == left
    for batch in batches:
        expected = rows.rows(batch.positions_B)
        for part in batch.rows_BT.addressable_shards:
            assert np.asarray(part.data).tobytes() == expected[part.index].tobytes()


def test_the_clock_moves_on_over_a_window(rows):
    """A batch ends behind its last row, so that a window behind it changes nothing in its step;
    the last one ends with the run."""
    skips = Skips([[16, 40], [72, 80]])
    with Loader(rows, shard(), B, 0, 80, skips) as loader:
        found = [(b.position, b.next_position) for b in loader]
    assert found == [(0, 16), (40, 56), (56, 80)]
    with Loader(rows, shard(), B, 16, 80, skips) as loader:
        assert [(b.position, b.next_position) for b in loader] == found[1:]
    with Loader(rows, shard(), B, 72, 80, skips) as loader:
        assert list(loader) == []


def test_positions_beyond_32_bits(rows):
    start = 2**33 + 5
    with Loader(rows, shard(), B, start, start + B) as loader:
        batch = next(loader)
    assert batch.position == start
    assert (np.asarray(batch.rows_BT) == rows.rows(np.arange(start, start + B))).all()


def test_the_end_is_the_end(rows):
    with Loader(rows, shard(), B, 0, B) as loader:
        assert len(list(loader)) == 1
        with pytest.raises(StopIteration):
            next(loader)
    with Loader(rows, shard(), B, 64, 64) as loader:
        assert list(loader) == []


def test_held_out_rows_fill_their_last_batch_with_padding():
    held = SyntheticHeldOut(0, T, 300, count=20)
    with Loader(held, shard(), B, 0, 32) as loader:
        ids = np.concatenate([np.asarray(batch.rows_BT) for batch in loader])
    assert (ids[:20] == SyntheticRows(0, T, 300, "heldout").rows(np.arange(20))).all()
    assert (ids[20:] == held.pad_id).all()


def test_what_goes_wrong_in_the_thread_is_raised_by_next_and_stays(rows):
    with Loader(Slow(broken=B + 3), shard(), B, 0, 10 * B) as loader:
        next(loader)
        for _ in range(3):
            with pytest.raises(ManifestError, match="row 19 is broken") as e:
                next(loader)
            frames = [f.name for f in traceback.extract_tb(e.value.__traceback__)]
            assert "_fill" in frames and "rows" in frames, "the traceback shows where it happened"
    assert not loader_threads()


def test_it_reads_ahead_but_not_without_bound():
    rows = Slow()
    with Loader(rows, shard(), B, 0, 100 * B) as loader:
        for _ in range(3):
            loader.read_on()  # nothing was taken: no room is made
        for taken in range(3):  # DEPTH wait in the queue, and one wants room
            next(loader)
            wait_until_asked(rows, taken + DEPTH + 1)
            time.sleep(0.1)
            assert rows.asked == taken + DEPTH + 1, "read before it was asked to read on"
            for _ in range(3):
                loader.read_on()
            wait_until_asked(rows, taken + DEPTH + 2)
            time.sleep(0.1)
            assert rows.asked == taken + DEPTH + 2


def test_close_ends_the_thread_at_once():
    for taken in (0, 1, 3):
        loader = Loader(Slow(seconds=0.02), shard(), B, 0, 10_000 * B)
        for _ in range(taken):
            next(loader)
        began = time.monotonic()
        loader.close()
        loader.close()
        assert time.monotonic() - began < 1.0
        assert not loader_threads()
        with pytest.raises(ValueError, match="the loader is closed"):
            next(loader)


def test_a_forgotten_loader_leaves_no_thread():
    loader = Loader(Slow(), shard(), B, 0, 10_000 * B)
    next(loader)
    del loader
    gc.collect()
    assert not loader_threads()


def test_a_process_that_never_closed_its_loader_can_exit(tmp_path):
    manifest = make_corpus(tmp_path / "corpus", {"web": (50, 50)})
    code = (
        "from tests.data.read_batches import *\n"
        f"rows = open_rows({str(manifest)!r})\n"
        "loader = Loader(rows, sharding((2, 2, 2), (0, 1, 2)), 16, 0, 16_000_000)\n"
        "print(next(loader).position)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_rows_from_shards_and_no_thread_left_behind(tmp_path):
    manifest = make_corpus(tmp_path / "corpus", {"web": (100, 51, 70), "code": (40,)})
    rows = read_batches.open_rows(str(manifest))
    with Loader(rows, shard(), B, 0, 1000 * B) as loader:
        for _ in range(20):
            batch = next(loader)
            expected = rows.rows(np.arange(batch.position, batch.next_position))
            assert (np.asarray(batch.rows_BT) == expected).all()
    deadline = time.monotonic() + 60  # Grain's threads end by themselves when they have read
    while loader_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not loader_threads()


@pytest.mark.parametrize("processes", [2, 4])
def test_real_processes_read_the_same_bytes_and_only_their_own(tmp_path, processes):
    manifest = make_corpus(tmp_path / "corpus", {"web": (100, 51, 70), "code": (40,)})
    with Loader(read_batches.open_rows(str(manifest)), shard(), B, 0, 6 * B) as loader:
        np.save(tmp_path / "rows.npy", np.concatenate([np.asarray(b.rows_BT) for b in loader]))
    arguments = [str(manifest), str(tmp_path / "rows.npy"), str(free_port()), str(processes)]
    flags = f"--xla_force_host_platform_device_count={8 // processes}"
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.data.read_batches", *arguments, str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags},
        )
        for i in range(processes)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running), "\n".join(outputs)
    assert all("all equal" in output for output in outputs)


# ---- refusals ------------------------------------------------------------------------------------


def test_an_end_that_is_not_whole_batches_is_refused(rows):
    with pytest.raises(ConfigError) as e:
        Loader(rows, shard(), B, 8, 100)
    assert str(e.value) == (
        "rows 8 to 100, without the skipped ones, are not whole batches of batch_size=16: "
        "12 are left over; use a batch size that divides them"
    )
    with pytest.raises(ConfigError, match="start=100 is past end=84: the run is over"):
        Loader(rows, shard(), B, 100, 84)


def test_a_batch_that_the_mesh_cannot_split_is_refused(rows):
    with pytest.raises(ConfigError, match=r"batch_size=12 cannot be split over data\*fsdp=8; use"):
        Loader(rows, shard(2, 4, 1), 12, 0, 120)
    assert not loader_threads()
