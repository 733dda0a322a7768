"""The copy of a work directory that lies in a store."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from bench.stores import Fault, Proxy, put
from jaxlm import mirror, site, storage, workdir
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.lease import Lost
from jaxlm.mirror import Mirror
from tests.launch.watch import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PERIOD_S", 0.1)
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def url(store: Proxy, request: pytest.FixtureRequest) -> str:
    return store.url(f"{request.node.originalname}/run")


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
    assert sum(r.startswith(("PUT", "POST")) for r in store.requests) == 1
    assert storage.entries(url) == (["a"], [])
    sent = len(store.requests)
    found.send()
    assert len(store.requests) == sent
    (found / "a").unlink()  # by whoever cleans up /tmp
    (found / "empty").touch()
    found.send()
    assert storage.entries(url) == (["a"], [])


def test_it_is_sent_from_time_to_time_and_all_at_the_end(url, monkeypatch):
    monkeypatch.setattr(mirror, "BYTES_PER_S", 1.0)  # a file of 100 bytes every 100 s
    found = Mirror(url)
    with found.sending():
        (found / "log").write_text("x" * 100)
        deadline = time.monotonic() + 60
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
    said = ""
    with pytest.raises(EnvironmentProblem), found.sending():
        (found / "status.json").write_text("{}")
        deadline = time.monotonic() + 60
        while "training goes on" not in said:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            said += capsys.readouterr().err
        time.sleep(0.5)  # it is said once
    said += capsys.readouterr().err
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
    site.try_to_send(found, within_s=0.5)
    assert time.monotonic() - began < 20
    until(lambda: any(fault.times < 100 for fault in store.faults))  # it hung
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


def test_another_host_sees_what_was_written_for_it(store, url):
    with site.probe(Mirror(url)) as name:
        assert site.sees(Mirror(url), name, within_s=0.0)
        assert not site.sees(Mirror(f"{url}-other"), name, within_s=0.0)
    assert storage.entries(url) == ([], [])


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
    mark = {"s3": "DELETE /bucket/", "gs": "DELETE /storage/"}[store.scheme]
    store.requests.clear()
    storage.move(f"{url}/10", f"{url}/moved/10", "mark")
    assert sorted(storage.sizes(url, [""])) == ["moved/10/mark", "moved/10/x/1", "moved/10/x/2"]
    moved = f"{url.split('/', 3)[3]}/moved"
    writes = [r for r in store.requests if not r.startswith(("GET", "HEAD"))]
    (first,) = [i for i, r in enumerate(writes) if r.startswith(mark) and r.endswith("mark")]
    copies, deletions = writes[:first], writes[first + 1 :]
    assert len(copies) >= 3 and all(f"{moved}/10" in unquote(r) for r in copies), writes
    assert deletions and not any(moved in unquote(r) for r in deletions), writes


def test_what_is_deleted_while_it_is_listed_is_no_error(store, url, monkeypatch):
    put(store, f"{url.split('/', 3)[3]}/a", b"a")
    listed = storage.entries
    monkeypatch.setattr(storage, "entries", lambda at: ([*listed(at)[0], "gone"], []))
    found = Mirror(url)
    found.fetch()
    assert (found / "a").read_text() == "a" and not (found / "gone").exists()


def test_locks_and_probes_are_no_files_of_a_run(store, url):
    for name in ("lock", ".probe-1", "a"):
        put(store, f"{url.split('/', 3)[3]}/{name}", b"x")
    found = Mirror(url)
    found.fetch()
    assert {p.name for p in (found / "").iterdir()} == {"a"}


def test_nothing_is_sent_once_the_lease_is_lost(url):
    def lost() -> None:
        raise Lost("taken over")

    found = Mirror(url)
    (found / "status.json").write_text("{}")
    found.guard = lost
    with pytest.raises(Lost):
        found.send()
    found.try_to_send(5.0)
    assert storage.entries(url) == ([], [])


def test_one_file_that_is_refused_keeps_no_other(store, url):
    found = Mirror(url)
    for name in ("a", "log.txt", "z"):
        (found / name).write_text(name)
    method = "PUT" if store.scheme == "s3" else "POST"
    if store.scheme == "s3":
        store.faults.append(Fault("403", "log.txt", times=100, method=method))
        with pytest.raises(EnvironmentProblem):
            found.send()
        assert storage.entries(url)[0] == ["a", "z"]
        found.send(["a", "z"])
    store.faults.clear()
    found.send()
    assert storage.entries(url)[0] == ["a", "log.txt", "z"]


def test_an_error_is_not_hidden_by_a_store_that_fails_too(store, url, monkeypatch):
    monkeypatch.setattr(mirror, "LAST_S", 0.5)
    found = Mirror(url)
    (found / "a").write_text("a")
    for method in ("PUT", "POST"):
        store.faults.append(Fault("403", "", times=100, method=method))
    with pytest.raises(ZeroDivisionError), found.sending():
        raise ZeroDivisionError
