"""Files of real object stores, and what is made of a store that fails."""

from pathlib import Path

import jax
import pytest

from bench.stores import Fault, Proxy, put
from jaxlm import config, storage, stored_arrays
from jaxlm.errors import RESTART, EnvironmentProblem, UserError
from jaxlm.storage import StoreError, Torn

DATA = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


def is_data(path: Path) -> None:
    if path.read_bytes() != DATA:
        raise Torn("other bytes")


def test_what_is_a_url():
    assert storage.is_url("gs://b/x") and storage.is_url("s3:/b") and storage.is_url("http://x/y")
    for path in ("/a/b", "a/b.json", "../x", "C/x:y", ""):
        assert not storage.is_url(path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://host/x", "no URL of an object store"),
        ("gs:/bucket/x", "no URL of an object store"),
        ("s3://key:hunter2@bucket/x", "with a user"),
        ("s3://bucket/x?X-Amz-Signature=hunter2", "may be secret"),
        ("gs://bucket/x#hunter2", "may be secret"),
        ("s3://AKIA:abc/hunter2@bucket/run", "with a user"),
        ("s3://AKIA:hunter2/run", "with a user"),
        ("s3:///x", "must be s3://BUCKET/PATH"),
        ("gs://bucket//x", "'//' in it"),
        ("gs://bucket/./x", "'//' in it"),
        ("gs://bucket/a/../../x", "without '..'"),
        ("s3://bucket/run[1]/x", "take for patterns"),
        ("gs://bucket/*", "take for patterns"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_no_secret_is_shown(url, words):
    with pytest.raises(UserError, match=words) as e:
        storage.check(url)
    assert "hunter2" not in str(e.value)


def test_a_file_is_read_and_copied_and_listed(store: Proxy, tmp_path: Path):
    url = put(store, "dir/some file.bin", DATA)
    put(store, "dir/sub/text", "中文".encode())
    assert storage.read_text(store.url("dir/sub/text")) == "中文"
    storage.download(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA
    assert storage.sizes(store.url("dir"), ["sub", "some file.bin", "nothing"]) == {
        "sub/text": 6,
        "some file.bin": len(DATA),
    }


def test_what_is_written_after_a_look_is_seen(store: Proxy):
    assert storage.sizes(store.url("late"), ["x"]) == {}
    put(store, "late/x/y", b"1")
    assert storage.sizes(store.url("late"), ["x"]) == {"x/y": 1}


@pytest.mark.parametrize("kind", ["503", "reset", "truncated", "short", "flipped", "slow"])
def test_a_fault_that_passes_is_not_noticed(store: Proxy, kind: str, tmp_path: Path):
    url = put(store, "faulty", DATA)
    store.requests.clear()
    store.faults.append(fault := Fault(kind, store.media("faulty")))
    storage.download(url, tmp_path / "copy", is_data)
    assert (tmp_path / "copy").read_bytes() == DATA
    assert fault.times == 0  # it was there
    assert store.count(store.media("faulty")) >= (1 if kind == "slow" else 2)


@pytest.mark.parametrize("kind", ["503", "stall"])
def test_a_store_that_stays_away_is_named_and_a_restart_asked_for(
    s3: Proxy, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The client is made anew, to give up soon.
    monkeypatch.setattr(storage, "SILENT_S", 0.05)
    monkeypatch.setattr(storage, "WAITS_S", ())
    storage._filesystem.cache_clear()
    url = put(s3, "away", DATA)
    s3.faults.append(Fault(kind, s3.media("away"), times=1000))
    try:
        with pytest.raises(StoreError, match="s3://bucket/away: the store failed") as e:
            storage.download(url, tmp_path / "copy")
    finally:
        s3.faults.clear()
        storage._filesystem.cache_clear()
    assert e.value.exit_code == RESTART


def test_what_is_wrong_each_time_is_told_apart_from_a_store_that_is_away(
    store: Proxy, tmp_path: Path
):
    url = put(store, "wrong", DATA)
    store.faults.append(fault := Fault("flipped", store.media("wrong"), times=1000))
    with pytest.raises(UserError, match="other bytes, each time that it was fetched"):
        storage.download(url, tmp_path / "copy", is_data)
    assert fault.times == 1000 - 4


def test_a_refusal_is_not_repeated(store: Proxy, tmp_path: Path):
    url = put(store, "secret", DATA)
    store.faults.append(fault := Fault("403", store.media("secret"), times=1000))
    with pytest.raises(EnvironmentProblem, match="secret: the store refuses") as e:
        storage.download(url, tmp_path / "copy")
    assert e.value.exit_code == 78 and fault.times >= 995


def test_a_full_disk_here_is_not_the_store_s_fault(s3: Proxy):
    url = put(s3, "large", DATA)
    s3.requests.clear()
    with pytest.raises(OSError, match="No space left on device"):
        storage.download(url, Path("/dev/full"))
    assert s3.count(s3.media("large")) == 1


def test_a_config_with_a_secret_in_a_url_is_refused_without_showing_it():
    for url in ("s3://key:hunter2@bucket/manifest.json", "gs://b/manifest.json?sig=hunter2"):
        with pytest.raises(UserError, match="may be secret") as e:
            config.load(None, (f"data.manifest={url}",))
        assert "hunter2" not in str(e.value)


def test_no_such_file_and_no_such_bucket(store: Proxy):
    for url in (store.url("nothing"), f"{store.scheme}://other-bucket/nothing"):
        with pytest.raises(FileNotFoundError):
            storage.read_text(url)


def met(error: Exception, after: Exception | None = None) -> Exception:
    """An error as it is raised while another is handled, by default one of a store."""
    from botocore.exceptions import ReadTimeoutError

    try:
        try:
            raise after or ReadTimeoutError(endpoint_url="s3://bucket")
        except Exception:
            raise error  # noqa: B904
    except Exception as e:
        return e


def from_none(error: Exception) -> Exception:
    error.__suppress_context__ = True
    return error


def test_what_is_a_store_s_fault():
    import requests
    from fsspec.exceptions import FSTimeoutError

    assert isinstance(storage.problem(met(ValueError("wrapped"))), StoreError)
    assert isinstance(storage.problem(requests.exceptions.ProxyError()), StoreError)  # gcsfs's 502
    assert isinstance(storage.problem(FSTimeoutError()), StoreError)
    refused = storage.problem(OSError("Forbidden: https://storage/b"))
    assert isinstance(refused, EnvironmentProblem) and refused.exit_code == 78


def test_what_is_no_store_s_fault():
    for bug in (
        TypeError("None"),
        AttributeError("x"),
        NameError("y"),
        AssertionError(),
        KeyError(),
    ):
        assert storage.problem(met(bug)) is None
    assert storage.problem(met(from_none(ValueError("damaged")))) is None
    missing = met(FileNotFoundError("s3://b/x"))
    assert storage.problem(met(ValueError("is not there"), after=missing)) is None
    late = jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out")
    assert storage.problem(late, "s3://bucket/run") is None
    assert storage.problem(OSError("Forbidden")) is None


def test_what_is_wrong_with_a_file_here_is_not_the_store_s_fault(s3: Proxy, tmp_path: Path):
    url = put(s3, "here", DATA)
    s3.requests.clear()
    with pytest.raises(OSError, match="nothing-here"):
        storage.download(url, tmp_path / "nothing-here" / "copy")
    assert s3.count(s3.media("here")) <= 1


def test_who_may_write_below_a_directory_alone_is_not_asked_for_more(store: Proxy):
    from etils import epath

    stored_arrays.prepare(store.url("run"))
    store.requests.clear()
    (epath.Path(store.url("run")) / "a" / "b").mkdir(parents=True, exist_ok=True)
    assert store.requests == []
