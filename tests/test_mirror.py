"""The copy of a work directory that lies in a store."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bench.stores import Fault, Proxy, put
from jaxlm import mirror, site, storage, workdir
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.mirror import Mirror


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PERIOD_S", 0.1)
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def url(store: Proxy, request: pytest.FixtureRequest) -> str:
    return store.url(f"{request.node.originalname}/run")


def writes(store: Proxy, name: str) -> int:
    return sum(r.startswith(("PUT", "POST")) and name in r for r in store.requests)


def test_what_is_written_here_is_read_by_the_next_one(url):
    first = Mirror(url)
    (first / "events" / "spike").mkdir(parents=True)
    (first / "events/spike/event.json").write_text("{}")
    workdir.append_line(first / "metrics.jsonl", {"step": 1})
    first.send()
    second = Mirror(url + "/")
    second.fetch()
    workdir.append_line(second / "metrics.jsonl", {"step": 2})
    second.send()
    assert not (second / "events").exists()  # only what is asked for
    second.fetch("events/spike")
    assert (second / "events/spike/event.json").read_text() == "{}"
    lines = storage.read_text(f"{url}/metrics.jsonl").splitlines()
    assert lines == ['{"step": 1}', '{"step": 2}']


def test_what_has_not_changed_is_not_sent_again(store, url):
    found = Mirror(url)
    (found / "a").write_text("a")
    (found / "b.tmp").write_text("half")
    found.send()
    found.send()
    assert writes(store, "run/a") + writes(store, "run%2Fa") == 1 or store.scheme == "gs"
    assert storage.entries(url) == (["a"], [])
    sent = len(store.requests)
    found.send()
    assert len(store.requests) == sent
    (found / "a").unlink()
    found.send()
    assert storage.entries(url) == ([], [])


def test_it_is_sent_from_time_to_time_and_all_at_the_end(url, monkeypatch):
    monkeypatch.setattr(mirror, "BYTES_PER_S", 1.0)  # a file of 100 bytes every 100 s
    found = Mirror(url)
    with found.sending():
        (found / "log").write_text("x" * 100)
        deadline = time.monotonic() + 20
        while storage.entries(url)[0] != ["log"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (found / "log").write_text("y" * 100)
        time.sleep(1.0)
        assert storage.read_text(f"{url}/log") == "x" * 100
    assert storage.read_text(f"{url}/log") == "y" * 100


def test_a_store_that_fails_ends_nothing_until_the_end(store, url, capsys):
    found = Mirror(url)
    method = "PUT" if store.scheme == "s3" else "POST"
    store.faults.append(Fault("403", "", times=10_000, method=method))
    with pytest.raises(EnvironmentProblem), found.sending():
        (found / "status.json").write_text("{}")
        time.sleep(1.0)
    said = capsys.readouterr().err
    assert said.count("training goes on") == 1 and url in said
    store.faults.clear()
    with found.sending():
        pass
    assert storage.entries(url)[0] == ["status.json"]


def test_the_last_word_of_a_process_does_not_wait_for_a_store_that_hangs(store, url):
    found = Mirror(url)
    (found / "stacks.txt").write_text("where it hangs")
    store.faults.append(Fault("stall", "", times=100, method="PUT"))
    store.faults.append(Fault("stall", "", times=100, method="POST"))
    began = time.monotonic()
    site.send(found, within_s=0.5)
    assert time.monotonic() - began < 3
    store.released.set()
    store.released.clear()


def test_a_directory_of_a_process_that_was_killed_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from jaxlm.mirror import Mirror\n"
        "kept = Mirror('s3://b/x'); kept / 'a'; os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    alive = Mirror("s3://bucket/run")
    (alive / "a").write_text("a")
    assert not left.exists()
    Mirror("s3://bucket/other") / "a"
    assert (alive / "a").exists()


def test_a_bucket_that_is_not_there_or_may_not_be_written_is_the_environment(store, url):
    with pytest.raises(EnvironmentProblem, match=f"--workdir={store.scheme}://nothing/run: "):
        site.check_writable(Mirror(f"{store.scheme}://nothing/run"))
    method = "PUT" if store.scheme == "s3" else "POST"
    store.faults.append(Fault("403", "", times=100, method=method))
    with pytest.raises(EnvironmentProblem, match="the store refuses"):
        site.check_writable(Mirror(url))


def test_work_directories_by_path_and_by_url():
    assert site.of("runs/a") == Path("runs/a")
    assert str(site.of("gs://bucket/a/")) == "gs://bucket/a"
    for wrong in ("http://host/x", "s3:/bucket/x", "s3://key:hunter2@bucket/x"):
        with pytest.raises(UserError) as e:
            site.of(wrong)
        assert "hunter2" not in str(e.value)


def test_a_directory_is_moved_and_its_mark_goes_first(store, url):
    for name in ("mark", "x/1", "x/2"):
        put(store, f"{url.split('/', 3)[3]}/10/{name}", name.encode())
    store.requests.clear()
    storage.move(f"{url}/10", f"{url}/moved/10", "mark")
    assert sorted(storage.sizes(url, [""])) == ["moved/10/mark", "moved/10/x/1", "moved/10/x/2"]
