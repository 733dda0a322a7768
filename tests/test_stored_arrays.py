"""What is replaced in Orbax for s3://; an upgrade that makes it wrong or needless fails here."""

import contextlib
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath

from bench.stores import Fault, Proxy, put
from jaxlm import checkpoint, integrity, storage, stored_arrays
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.errors import EnvironmentProblem
from jaxlm.integrity import Damaged
from jaxlm.mirror import Mirror
from jaxlm.storage import StoreError

TREE = {"params": {"w": np.arange(2000.0, dtype=np.float32), "b": np.ones(3, np.float32)}}
NOTES = {"position": 8}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def url(store: Proxy, request: pytest.FixtureRequest) -> str:
    return store.url(f"{request.node.originalname}/full")


def template():
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), placed())


def placed():
    return jax.tree.map(jax.device_put, TREE)


def test_orbax_still_has_what_is_replaced_and_still_does_not_know_s3():
    code = """
from orbax.checkpoint._src.path import gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils
assert callable(gcs_utils.get_kvstore_for_gcs)
assert callable(gcs_utils.is_hierarchical_namespace_enabled)
assert callable(tensorstore_utils._normalize_path)
assert tensorstore_utils._use_gcs_driver("gs://bucket/a")
assert not tensorstore_utils._use_gcs_driver("s3://bucket/a")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_paths_keep_both_slashes_of_a_scheme():
    for path, expected in {
        "s3://bucket//a/./b/": "s3://bucket/a/b",
        "gs://bucket/a": "gs://bucket/a",
        "/a//b/": "/a/b",
    }.items():
        assert stored_arrays._normalized(path) == expected


def test_checkpoints_are_saved_verified_restored_and_deleted(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        for step in (1, 2, 3):
            found.save(placed(), step, NOTES, for_ever=step == 1)
            assert found.wait() is None
    with contextlib.closing(Checkpoints(url, Keep(2), read_only=True)) as found:
        assert found.steps() == [1, 2, 3]  # the first is kept for ever
        found.verify(3)
        assert found.notes(3) == NOTES
        restored = found.restore(3, template())
        jax.tree.map(np.testing.assert_array_equal, restored, TREE)
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        found.save(placed(), 4, NOTES)
        assert found.wait() is None and found.steps() == [1, 3, 4]
    assert not list(tmp_path.iterdir())  # no directory called "s3:"
    assert sorted(storage.entries(url)[1]) == ["1", "3", "4"]


def test_a_file_that_is_other_or_gone_is_damage_and_a_store_that_errs_is_not(store, url):
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        found.save(placed(), 1, NOTES)
        assert found.wait() is None
        names = [name for name in storage.sizes(f"{url}/1", [""]) if "/d/" in name]
        for kind in ("503", "truncated", "flipped", "reset"):
            store.faults.append(Fault(kind, store.media(f"{url.split('/', 3)[3]}/1/{names[0]}")))
        found.verify(1)
        assert [fault.times for fault in store.faults] == [0] * 4
        store.faults.clear()
        target = epath.Path(url) / "1" / names[0]
        data = target.read_bytes()
        target.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(Damaged, match="does not match its checksum"):
            found.verify(1)
        target.unlink()
        with pytest.raises(Damaged, match="is missing"):
            found.verify(1)


@pytest.mark.parametrize(("fault", "error"), [("503", StoreError), ("403", EnvironmentProblem)])
def test_checksums_that_cannot_be_read_are_no_damage(store, url, fault, error):
    """Or `--fallback` would give up a checkpoint that is whole."""
    url += fault
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        found.save(placed(), 1, NOTES)
        assert found.wait() is None
        times = 10_000 if store.scheme == "s3" or fault == "403" else 0  # gcsfs tries for minutes
        name = store.media(f"{url.split('/', 3)[3]}/1/checksums.json")
        store.faults.append(Fault(fault, name, times=times))
        with pytest.raises(error) if times else contextlib.nullcontext():
            found.verify(1)


def test_a_save_into_a_store_that_fails_is_told_and_can_be_tried_again(store, url):
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        found.save(placed(), 1, NOTES)
        assert found.wait() is None
        method = "PUT" if store.scheme == "s3" else "POST"
        store.faults.append(Fault("403", "full", times=10_000, method=method))
        found.save(placed(), 2, NOTES)
        problem = found.wait()
        assert isinstance(problem, EnvironmentProblem) and f"{url}/2" in str(problem)
        store.faults.clear()
        found.discard_failed()
        assert found.latest() == 1
        found.save(placed(), 2, NOTES)
        assert found.wait() is None and found.latest() == 2


def test_a_store_that_stays_away_fails_saves_and_nothing_else(store, url):
    """What failed saves have left is deleted when it is back, and counts as no checkpoint."""
    part = url.split("/", 3)[3]
    away = [
        Fault("403", part, 10_000, method) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")
    ]
    with contextlib.closing(Checkpoints(url, Keep(2))) as found:
        found.save(placed(), 1, NOTES)
        assert found.wait() is None
        found._before = lambda: store.faults.extend(away)
        for step in (
            2,
            3,
        ):  # before the marker of the one, and at the start of the other
            found.save(placed(), step, NOTES)
            assert found.wait() is not None
            found.discard_failed()
            assert found.steps() == [1]
        store.faults.clear()
        found._before = lambda: None
        for step in (4, 5):
            found.save(placed(), step, NOTES)
            assert found.wait() is None
            assert found.steps()[-2:] == [1 if step == 4 else 4, step]
    assert storage.entries(url)[1] == ["4", "5"]


def test_a_checkpoint_that_has_lost_its_marker_is_not_deleted(store, url):
    directory = Mirror(url)
    for step in (1, 2):
        put(store, f"{url.split('/', 3)[3]}/checkpoints/full/{step}/state/x", b"x")
    put(store, f"{url.split('/', 3)[3]}/checkpoints/full/2.bad/state/x", b"x")
    checkpoint.clear_unfinished(directory, 1)
    assert storage.entries(f"{url}/checkpoints/full")[1] == ["2.bad"]
    (moved,) = storage.entries(f"{url}/abandoned")[1]
    assert storage.read(f"{url}/abandoned/{moved}/full/1/state/x") == b"x"


def test_what_the_caller_does_before_a_commit_can_stop_it(tmp_path):
    def fails() -> None:
        raise RuntimeError("not ours")

    with contextlib.closing(Checkpoints(tmp_path / "full", Keep(2), before_commit=fails)) as found:
        found.save(placed(), 1, NOTES)
        assert "not ours" in str(found.wait())
        found.discard_failed()
        assert found.latest() is None


def test_shares_of_checksums_come_together(tmp_path, monkeypatch):
    root = epath.Path(tmp_path)
    for name in ("state/ocdbt.process_0/d/a", "state/ocdbt.process_1/d/b", "state/m", "notes/n"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    read: list[str] = []
    sums = integrity._sums
    monkeypatch.setattr(integrity, "_sums", lambda d, names: read.extend(names) or sums(d, names))
    shares = [integrity.sums(root, f"state/ocdbt.process_{i}") for i in range(2)]
    integrity.write(root, shares[0] | shares[1])
    assert sorted(read) == [
        "notes/n",
        "state/m",
        "state/ocdbt.process_0/d/a",
        "state/ocdbt.process_1/d/b",
    ]  # each once
    assert {p.name for p in Path(tmp_path).iterdir()} == {"state", "notes", integrity.CHECKSUMS}
    integrity.verify(root)
    (root / "state/ocdbt.process_1/d/b").write_text("other")
    with pytest.raises(Damaged, match="process_1/d/b: does not match"):
        integrity.verify(root)
