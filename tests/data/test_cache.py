"""The cache of an object store's files: real files, locks and processes."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.stores import Fault, Proxy, put
from jaxlm import storage
from jaxlm.data.cache import GB, Cache, CacheConfig, CacheFull, Hold, Stored
from jaxlm.errors import EnvironmentProblem, UserError

SIZE = 1000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def config(tmp_path: Path) -> CacheConfig:
    """Room for three files."""
    return CacheConfig(directory=str(tmp_path / "cache"), max_gb=3 * SIZE / GB)


@pytest.fixture
def cache(config: CacheConfig) -> Cache:
    return Cache(config, patience_s=0.0)


def stored(store: Proxy, name: str) -> Stored:
    data = hashlib.sha256(name.encode()).digest() * 32
    url = put(store, name, data[:SIZE])
    return Stored(url, SIZE, hashlib.sha256(data[:SIZE]).hexdigest())


def here(cache: Cache) -> set[str]:
    return {p.name for p in cache.directory.iterdir() if not p.suffix and p.name != "lock"}


def age(cache: Cache, *files: Stored) -> None:
    """Makes them the ones used longest ago, the first the longest."""
    for i, file in enumerate(files):
        os.utime(cache.directory / file.sha256, (i, i))


def test_a_file_is_fetched_once(store: Proxy, cache: Cache):
    file = stored(store, "once")
    store.requests.clear()
    for _ in range(3):
        path = cache.hold(file).path
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    assert store.count(store.media("once")) == 1


def test_it_may_come_to_hold_what_its_disk_has_free_and_what_it_may_delete(
    s3: Proxy, cache: Cache, monkeypatch: pytest.MonkeyPatch
):
    cache.hold(stored(s3, "one"))
    for free, expected in ((0, SIZE), (SIZE, 2 * SIZE), (9 * SIZE, cache.limit)):
        found = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, found=found: found)
        assert cache.capacity() == expected


def test_several_processes_fetch_it_once(s3: Proxy, config: CacheConfig):
    file = stored(s3, "together")
    s3.requests.clear()
    s3.faults.append(Fault("slow", s3.media("together")))
    code = (
        "from jaxlm.data.cache import *\n"
        f"print(Cache({config!r}).hold(Stored(*{tuple(file)!r})).path)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = [process.communicate()[0].decode().strip() for process in started]
    assert said == [str(Path(config.directory, file.sha256))] * 3
    assert s3.count(s3.media("together")) == 1


def test_several_threads_fetch_it_once(s3: Proxy, cache: Cache):
    file = stored(s3, "threads")
    s3.requests.clear()
    s3.faults.append(Fault("slow", s3.media("threads")))
    threads = [threading.Thread(target=cache.hold, args=(file,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert s3.count(s3.media("threads")) == 1


def test_the_file_used_longest_ago_makes_room(s3: Proxy, cache: Cache):
    a, b, c, d = (stored(s3, name) for name in "abcd")
    for file in (a, b, c):
        cache.hold(file)
    age(cache, b, a, c)
    cache.hold(d)
    assert here(cache) == {a.sha256, c.sha256, d.sha256}


def test_a_file_in_use_is_not_deleted_in_any_process(s3: Proxy, cache: Cache, config: CacheConfig):
    a, b, c, d = (stored(s3, name) for name in "abcd")
    held = cache.hold(a)
    code = (
        "import sys\nfrom jaxlm.data.cache import *\n"
        f"hold = Cache({config!r}).hold(Stored(*{tuple(b)!r}))\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        cache.hold(c)
        age(cache, a, b, c)
        cache.hold(d)
        assert here(cache) == {a.sha256, b.sha256, d.sha256}
        process.communicate()
    del held
    age(cache, a)
    cache.hold(c)
    assert here(cache) == {b.sha256, c.sha256, d.sha256}


def test_a_cache_whose_files_are_all_in_use_says_how_large_it_must_be(s3: Proxy, config):
    cache = Cache(replace(config, max_gb=2 * SIZE / GB), patience_s=0.0)
    a, b, c = (stored(s3, name) for name in "abc")
    holds = [cache.hold(a), cache.hold(b)]
    with pytest.raises(CacheFull, match=r"max_gb=2e-06: 2e-06 GB in .* raise it to 3e-06 at least"):
        cache.hold(c)

    def let_go() -> bool:
        return bool(holds and holds.pop())

    cache.hold(c, let_go)
    assert here(cache) == {a.sha256, c.sha256} and len(holds) == 1


def test_a_fetch_waits_for_another_process_to_let_go(s3: Proxy, config: CacheConfig):
    cache = Cache(replace(config, max_gb=SIZE / GB), patience_s=60.0)
    a, b = stored(s3, "a"), stored(s3, "b")
    holds: list[Hold] = [cache.hold(a)]
    threading.Timer(0.2, holds.clear).start()
    cache.hold(b)
    assert here(cache) == {b.sha256}


@pytest.mark.parametrize("kind", ["503", "reset", "truncated", "short", "flipped"])
def test_what_comes_wrong_once_is_fetched_again(s3: Proxy, cache: Cache, kind: str):
    file = stored(s3, "wrong")
    s3.faults.append(fault := Fault(kind, s3.media("wrong")))
    path = cache.hold(file).path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256 and fault.times == 0


@pytest.mark.parametrize("kind", ["short", "flipped"])
def test_what_comes_wrong_each_time_is_an_error_and_leaves_nothing(s3: Proxy, cache: Cache, kind):
    file = stored(s3, "wrong")
    s3.faults.append(Fault(kind, s3.media("wrong"), times=1000))
    found = 500 if kind == "short" else 1000
    with pytest.raises(
        UserError, match=rf"s3://bucket/wrong: {found} bytes with SHA-256 .* says 1000 with"
    ) as e:
        cache.hold(file)
    s3.faults.clear()
    assert e.value.exit_code == 2 and not here(cache)
    assert not list(cache.directory.glob("*.part"))


def test_a_missing_file_is_named(store: Proxy, cache: Cache):
    with pytest.raises(UserError, match="nothing: is missing; restore it"):
        cache.hold(Stored(store.url("nothing"), 5, "0" * 64))


def test_what_a_killed_process_left_takes_no_room(s3: Proxy, cache: Cache):
    a, b, c = (stored(s3, name) for name in "abc")
    for file in (a, b):  # begun, and never finished
        (cache.directory / f"{file.sha256}.{SIZE}.part").write_bytes(b"half")
        (cache.directory / f"{file.sha256}.lock").touch()
    with (cache.directory / f"{b.sha256}.lock").open() as being_fetched:
        fcntl.flock(being_fetched, fcntl.LOCK_EX)
        cache.hold(c)
        cache.hold(stored(s3, "d"))
        left = {p.name for p in cache.directory.glob("*.part")}
    assert left == {f"{b.sha256}.{SIZE}.part"}
    assert cache.hold(a).path.stat().st_size == SIZE


def test_a_file_cut_short_on_this_disk_is_fetched_again(s3: Proxy, cache: Cache):
    file = stored(s3, "cut")
    path = cache.hold(file).path
    os.truncate(path, 10)
    assert cache.hold(file).path.stat().st_size == SIZE


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=r"config.cache.directory='.*file/x'"):
        Cache(CacheConfig(directory=str(tmp_path / "file" / "x")))


@pytest.mark.parametrize("name", ["../../elsewhere", "", "0" * 63, "Z" * 64])
def test_a_sum_that_is_none_does_not_become_a_path(cache: Cache, name: str):
    with pytest.raises(UserError, match="not 64 hex digits"):
        cache.hold(Stored("s3://bucket/x", 1, name))
