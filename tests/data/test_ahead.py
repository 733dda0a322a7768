"""Rows of a corpus in an object store: the same as from a disk, fetched before they are wanted."""

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest

from bench.small_corpus import make_corpus
from bench.stores import Fault, Proxy, put, put_tree
from jaxlm import config as config_lib
from jaxlm import storage
from jaxlm.config import DataConfig
from jaxlm.data import manifest as manifests
from jaxlm.data import source
from jaxlm.data.cache import GB, CacheConfig
from jaxlm.data.corpus import open_corpus
from jaxlm.data.files import open_files
from jaxlm.data.manifest import ManifestError
from jaxlm.errors import EnvironmentProblem

SOURCES = {"web": (40, 40, 40, 40), "code": (40, 40)}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(
        tmp_path_factory.mktemp("ahead") / "corpus", SOURCES, heldout={"web": (3,)}, tokenizer=True
    )


@pytest.fixture
def url(store: Proxy, local: Path) -> str:
    found = put_tree(store, "corpus", local.parent)
    store.requests.clear()
    return f"{found}/manifest.json"


@pytest.fixture
def cache(tmp_path: Path) -> CacheConfig:
    return CacheConfig(directory=str(tmp_path / "cache"), max_gb=1.0, ahead=2)


def config(manifest: Path | str) -> DataConfig:
    return DataConfig(manifest=str(manifest), seq_len=32, shuffle_window=64 * 20, block_rows=20)


def open_train(manifest: Path | str, cache: CacheConfig) -> source.TrainRows:
    return source.open_train(open_files(str(manifest), cache), config(manifest), ())


def read(rows: source.TrainRows, batches: int) -> np.ndarray:
    return np.stack(list(rows.stream(np.arange(batches * 8).reshape(batches, 8))))


def test_rows_are_those_of_a_disk_and_each_shard_is_fetched_once(store, url, local, cache):
    expected = open_train(local, cache)
    found = open_train(url, cache)
    assert found.fingerprint() == expected.fingerprint()
    np.testing.assert_array_equal(read(found, 60), read(expected, 60))  # two epochs
    for name in ("web", "code"):
        for i in range(len(SOURCES[name])):
            assert store.count(store.media(f"corpus/shards/{name}-train-{i:05d}")) == 1
    store.requests.clear()
    again = open_train(url, cache)  # of the next start, from the cache
    np.testing.assert_array_equal(read(again, 5), read(expected, 5))
    assert store.count(store.media("corpus/shards/")) == 0


def test_heldout_and_tokenizer_come_from_the_store_too(store, url, local, cache):
    for where in (local, url):
        path = open_files(str(where), cache).tokenizer()
        assert path.read_bytes() == (local.parent / "tokenizer.model").read_bytes()
    expected = source.open_heldout(open_files(str(local), cache), 32)["web"].rows(np.arange(3))
    found = source.open_heldout(open_files(url, cache), 32)["web"].rows(np.arange(3))
    np.testing.assert_array_equal(found, expected)


def test_a_start_reads_the_manifest_and_lists_the_shards_once(store, url, cache):
    overrides = ("model.vocab_size=320", "data.seq_len=32", f"data.manifest={url}")
    cfg = config_lib.load(None, (*overrides, f"cache.directory={cache.directory}"))
    corpus = open_corpus(cfg)
    assert store.count(store.media("corpus/manifest.json")) == 1
    assert sum("prefix=corpus/shards/" in unquote(r) for r in store.requests) == 1
    assert corpus.train.rows(np.arange(8)).any() and corpus.heldout["web"].rows(np.arange(3)).any()


def test_a_small_cache_is_never_exceeded_and_gives_the_same_rows(s3, tmp_path):
    local = make_corpus(tmp_path / "corpus", {"web": [40] * 10, "code": [40] * 6})
    url = f"{put_tree(s3, 'small', local.parent)}/manifest.json"
    sizes = [s.file_bytes for s in manifests.load(local).shards]
    directory = tmp_path / "cache"
    cache = CacheConfig(directory=str(directory), max_gb=1e-9, ahead=4)
    with pytest.raises(EnvironmentProblem, match="max_gb=1e-09: the shards in use at once") as e:
        open_train(url, cache)
    least = float(str(e.value).partition("raise it to ")[2].split()[0])
    limit = least * 1.01
    assert limit * GB < sum(sizes)
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            now = 0
            for path in directory.glob("*"):
                try:
                    now += path.stat().st_size if path.is_file() else 0
                except FileNotFoundError:
                    continue
            most[0] = max(most[0], now)

    threading.Thread(target=watch).start()
    rows = open_train(url, replace(cache, max_gb=limit))
    try:
        found = read(rows, 90)
    finally:
        done.set()
    np.testing.assert_array_equal(found, read(open_train(local, cache), 90))
    assert 0 < most[0] <= limit * GB
    assert s3.count(s3.media("small/shards/")) > len(sizes)  # an epoch ends: some came twice


def test_a_cache_on_a_full_disk_is_refused(url, cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    message = r"cache': its disk has room for 1e-06 GB of the cache, and the shards in use at once"
    with pytest.raises(EnvironmentProblem, match=message):
        open_train(url, cache)


def test_the_next_shards_come_before_their_rows_are_wanted(s3, local, cache):
    url = f"{put_tree(s3, 'early', local.parent)}/manifest.json"
    rows = open_train(url, cache)
    batches = np.arange(240).reshape(30, 8)
    stream = rows.stream(batches)
    next(stream)
    needed = {s.path for batch in batches[:9] for s in rows._shards_at(batch)}
    order = dict.fromkeys(s.path for batch in batches for s in rows._shards_at(batch))
    ahead = next(path for path in order if path not in needed)
    deadline = time.monotonic() + 30
    while not s3.count(s3.media(f"early/{ahead}")):  # Grain has not come to it, nor will it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stream.close()


@pytest.mark.parametrize("kind", ["503", "reset", "truncated", "flipped"])
def test_faults_while_training_reads_change_nothing(s3, local, cache, kind):
    url = f"{put_tree(s3, 'faults', local.parent)}/manifest.json"
    rows = open_train(url, cache)
    s3.faults.append(fault := Fault(kind, s3.media("faults/shards/"), times=3))
    expected = open_train(local, cache)
    np.testing.assert_array_equal(read(rows, 30), read(expected, 30))
    assert fault.times == 0
    s3.faults.clear()


def test_a_corpus_that_is_not_whole_is_refused_at_the_start(store, url, local, cache):
    shard = manifests.load(local).shards[0]
    put(store, f"corpus/{shard.path}", b"short")
    with pytest.raises(ManifestError, match=f"corpus/{shard.path}: 5 bytes, the manifest says"):
        open_train(url, cache)
    manifest = manifests.load(local)
    missing = replace(manifest, shards=(replace(shard, path="shards/none"), *manifest.shards[1:]))
    manifests.save(missing, local.with_name("other.json"))
    other = put(store, "corpus/other.json", local.with_name("other.json").read_bytes())
    with pytest.raises(ManifestError, match="shards/none: is missing"):
        open_train(other, cache)


def test_a_manifest_that_is_not_there_is_named(store, cache):
    for name in (store.url("no/manifest.json"), f"{store.scheme}://nobody/manifest.json"):
        with pytest.raises(ManifestError, match=f"{name}: no such manifest, or no such bucket"):
            open_files(name, cache)


def test_a_store_that_refuses_is_told_from_a_corpus_that_is_not_there(store, url, cache):
    store.faults.append(Fault("403", store.media("corpus/manifest.json"), times=1000))
    with pytest.raises(EnvironmentProblem, match=f"{url}: the store refuses") as e:
        open_files(url, cache)
    assert e.value.exit_code == 78
