"""Rows from shards: the right ids, and every kind of damage named."""

import os
import resource
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.small_corpus import make_corpus, read_shard, write_shard
from jaxlm.config import DataConfig
from jaxlm.data import manifest as manifests
from jaxlm.data import source
from jaxlm.data.cache import CacheConfig
from jaxlm.data.files import open_files
from jaxlm.data.manifest import ManifestError
from jaxlm.data.order import OrderError, Stage

SOURCES = {"web": (100, 51, 70), "code": (40,)}
HELDOUT = {"web": (5, 3), "code": (4,)}
ROWS = sum(map(sum, SOURCES.values()))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "corpus", SOURCES, heldout=HELDOUT)


def config(manifest: Path, seq_len: int = 32) -> DataConfig:
    return DataConfig(manifest=str(manifest), seq_len=seq_len, shuffle_window=1000)


def train_rows(data: DataConfig, stages: Sequence[Stage] = ()) -> source.TrainRows:
    return source.open_train(open_files(data.manifest, CacheConfig()), data, stages)


def open_train(manifest: Path, seq_len: int = 32) -> source.TrainRows:
    return train_rows(config(manifest, seq_len))


def open_heldout(manifest: Path, seq_len: int = 32) -> dict[str, source.HeldOutRows]:
    return source.open_heldout(open_files(str(manifest), CacheConfig()), seq_len)


def edit(path: Path, edited: Mapping[str, Any]) -> None:
    """Saves the manifest with these fields changed."""
    manifests.save(replace(manifests.load(path), **edited), path)


def edit_shard(path: Path, edited: Mapping[str, Any]) -> None:
    """Saves the manifest with these fields of its first shard changed."""
    first, *others = manifests.load(path).shards
    edit(path, {"shards": (replace(first, **edited), *others)})


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_row_is_a_run_of_chunks_with_their_overlaps_dropped(manifest, chunks):
    rows = open_train(manifest, seq_len=32 * chunks)
    positions = np.arange(1000)
    where, ids = rows.order.locate(positions), rows.rows(positions)
    assert ids.shape == (1000, 32 * chunks + 1) and ids.dtype == np.uint16
    for i in range(0, 1000, 7):
        shard = rows.shard(where.source[i], where.shard[i])
        records = read_shard(manifest.parent / shard.path)
        stream = np.append(records[:, :-1].reshape(-1), records[-1, -1])
        start = where.row[i] * chunks * 32
        assert ids[i].tolist() == stream[start : start + 32 * chunks + 1].tolist()


def test_an_epoch_has_every_chunk_once(manifest):
    rows = train_rows(replace(config(manifest), block_rows=ROWS))
    ids = rows.rows(np.arange(ROWS))
    shards = [s for listed in rows.shards.by_source.values() for s in listed]
    every = np.concatenate([read_shard(manifest.parent / s.path) for s in shards])
    assert sorted(map(bytes, ids)) == sorted(map(bytes, every))
    assert rows.order.epochs(ROWS) == {"code": 1.0, "web": 1.0}


def test_leftover_chunks_are_counted(manifest):
    shards = open_train(manifest, seq_len=96).shards
    assert shards.leftover_chunks() == {"web": 1 + 0 + 1, "code": 1}


def test_stages_choose_the_sources(manifest):
    stages = [Stage(100, (("web", 1), ("code", 0))), Stage(None, (("web", 0), ("code", 1)))]
    rows = train_rows(replace(config(manifest), block_rows=100), stages)
    assert rows.order.draws(150).tolist() == [50, 100]


def test_the_window_is_given_in_bytes(manifest):
    rows = train_rows(replace(config(manifest, 64), shuffle_window=64 * 2 * 10))
    assert rows.order.fingerprint()["window_rows"] == {"code": 10, "web": 10}


@pytest.mark.parametrize("size", [3, 8, 40, 64, 100])
def test_a_stream_is_what_rows_gives(manifest, size):
    """Whether a read is several batches, or one, and the last one is short of batches."""
    rows = open_train(manifest)
    batches = [np.arange(i, i + size) for i in range(0, 20 * size, size)]
    streamed = list(rows.stream(batches))
    assert [len(ids) for ids in streamed] == [size] * 20
    assert (np.concatenate(streamed) == rows.rows(np.arange(20 * size))).all()


def test_a_stream_ends_at_the_first_damage(manifest):
    rows = open_train(manifest)
    batches = [np.arange(8), np.arange(8, 16), np.array([-1]), np.arange(16, 24)]
    stream = rows.stream(batches)
    assert next(stream).shape == next(stream).shape == (8, 33)
    with pytest.raises(OrderError, match="positions"):
        next(stream)
    assert list(stream) == []


def test_threads_read_the_same(manifest):
    rows = open_train(manifest)
    expected = rows.rows(np.arange(500))
    batches = [np.arange(i, i + 50) for i in range(0, 500, 50)] * 8
    with ThreadPoolExecutor(8) as pool:
        for batch, ids in zip(batches, pool.map(rows.rows, batches), strict=True):
            assert (ids == expected[batch]).all()


def test_few_shards_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "OPEN_SHARDS", 3)
    path = make_corpus(tmp_path / "corpus", {"web": (2,) * 20})
    rows = open_train(path)
    expected = rows.rows(np.arange(40))
    files = [os.path.realpath(f) for f in Path("/proc/self/fd").iterdir()]
    assert sum(file.startswith(str(tmp_path)) for file in files) == 3
    assert (rows.rows(np.arange(40)) == expected).all()


def test_open_shards_leave_most_files_to_others(tmp_path):
    """A process may have 400 files, so a hundred shards stay open."""
    rows = open_train(make_corpus(tmp_path / "corpus", {"web": (2,) * 120}))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        limited = open_train(make_corpus(tmp_path / "limited", {"web": (2,) * 120}))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in (rows, limited):
        each.rows(np.arange(240))
    files = [os.path.realpath(f) for f in Path("/proc/self/fd").iterdir()]
    names = ("corpus", "limited")
    found = [sum(file.startswith(str(tmp_path / name)) for file in files) for name in names]
    assert found[0] > found[1] == 100


def test_memory_and_open_files_do_not_grow_with_the_shards(tmp_path, monkeypatch):
    """A thousand of them, all in one shuffle window: most must be opened anew when they are met."""
    monkeypatch.setattr(source, "OPEN_SHARDS", 256)
    corpus = tmp_path / "corpus"
    path = make_corpus(corpus, {"web": (2,) * 500, "code": (2,) * 500})
    rows = train_rows(replace(config(path), shuffle_window=2**20, block_rows=2000))
    batches = [np.arange(i, i + 8) for i in range(0, 10_000, 8)]  # 5 epochs
    opened, resident = [], []
    for i, _ in enumerate(rows.stream(batches)):
        if i % 50 == 49:
            files = [os.path.realpath(f) for f in Path("/proc/self/fd").iterdir()]
            opened.append(sum(file.startswith(str(corpus)) for file in files))
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident.append(pages * os.sysconf("SC_PAGESIZE"))
    # One more may be in each thread's hands.
    assert 200 < max(opened) <= source.OPEN_SHARDS + source.READ_THREADS
    # The 6,000 shards that are opened after the first epoch would take 40 MB.
    assert max(resident) - resident[4] < 10e6


def test_held_out_rows_come_once_by_type_and_then_padding(manifest):
    held = open_heldout(manifest)
    assert list(held) == ["code", "web"] and [len(rows) for rows in held.values()] == [4, 8]
    ids = held["web"].rows(np.arange(12))
    shards = held["web"].shards.by_source["web"]
    records = np.concatenate([read_shard(manifest.parent / shard.path) for shard in shards])
    assert {*map(bytes, ids[:8])} == {*map(bytes, records)} and len({*map(bytes, ids[:8])}) == 8
    assert (ids[8:] == held["web"].pad_id).all()
    assert (next(held["web"].stream([np.arange(7, 9)])) == ids[7:9]).all()
    train = open_train(manifest).rows(np.arange(1000))
    assert not {*map(bytes, ids[:8])} & {*map(bytes, train)}


def test_the_first_held_out_rows_are_of_all_shards(tmp_path):
    path = make_corpus(tmp_path / "corpus", {"web": (1,)}, heldout={"web": (40, 40)})
    held = open_heldout(path)["web"]
    shards = held.shards.by_source["web"]
    first = {bytes(row) for row in held.rows(np.arange(20))}
    of_shard = [{bytes(r) for r in read_shard(path.parent / s.path)} & first for s in shards]
    assert all(len(found) >= 5 for found in of_shard)


def test_the_fingerprint_follows_what_decides_the_rows(manifest):
    prints = [open_train(manifest).fingerprint()]
    assert prints[0] == open_train(manifest).fingerprint()
    changes = {"seq_len": 64, "seed": 1, "block_rows": 500, "shuffle_window": 2000}
    for name, value in changes.items():
        prints.append(train_rows(replace(config(manifest), **{name: value})).fingerprint())
    even = [Stage(None, (("web", 1), ("code", 1)))]
    prints.append(train_rows(config(manifest), even).fingerprint())
    edit(manifest, {"tokenizer_hash": "another"})
    prints.append(open_train(manifest).fingerprint())
    assert all(a != b for i, a in enumerate(prints) for b in prints[:i])


# ---- refusals ------------------------------------------------------------------------------------


def read_all(manifest: Path) -> np.ndarray:
    return open_train(manifest).rows(np.arange(1000))


def first_shard(manifest: Path) -> Path:
    return manifest.parent / manifests.load(manifest).shards[0].path


def test_a_row_that_is_not_whole_chunks_is_refused(manifest):
    with pytest.raises(ManifestError) as e:
        open_train(manifest, seq_len=80)
    assert str(e.value) == (
        "seq_len=80 is not a multiple of the corpus's chunk_tokens=32; use 64 or 96"
    )
    with pytest.raises(ManifestError, match=r"seq_len=16 is not .*; use 32$"):
        open_train(manifest, seq_len=16)


def test_a_file_that_is_no_manifest_is_refused(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "binary.json", tmp_path):
        with pytest.raises(ManifestError, match=r": cannot be read as a manifest: "):
            open_train(path)


def test_a_missing_shard_is_named(manifest):
    first_shard(manifest).unlink()
    with pytest.raises(ManifestError, match=r"web-train-00000.array_record: shard is missing"):
        open_train(manifest)


@pytest.mark.parametrize("size", [0, 70_000])
def test_a_truncated_shard_is_named(manifest, size):
    os.truncate(first_shard(manifest), size)
    with pytest.raises(ManifestError, match=rf"00000.array_record: {size} bytes, the manifest"):
        open_train(manifest)
    # Also when the size agrees: the bare reader would say "no records" and go on.
    edit_shard(manifest, {"file_bytes": size})
    with pytest.raises(ManifestError, match=r"00000.array_record: 0 readable records, .* says 100"):
        read_all(manifest)


def test_a_flipped_bit_is_named_with_its_record(manifest):
    path = first_shard(manifest)
    data = bytearray(path.read_bytes())
    # The file has 64 kB blocks; the records lie at its beginning.
    data[3_000] ^= 4
    path.write_bytes(data)
    with pytest.raises(ManifestError, match=r"web-train-00000.array_record: record \d+ is damaged"):
        read_all(manifest)


def test_a_wrong_count_of_chunks_is_named(manifest):
    edit_shard(manifest, {"chunks": 99})
    with pytest.raises(ManifestError, match="100 readable records, the manifest says 99"):
        read_all(manifest)


def test_an_id_outside_the_vocabulary_is_named(manifest):
    edit(manifest, {"vocab_size": 200})
    with pytest.raises(ManifestError, match=r"array_record: id \d+ in row \d+, .* has 200"):
        read_all(manifest)


def test_records_of_another_size_are_named(manifest):
    edit(manifest, {"dtype": "uint32"})
    with pytest.raises(ManifestError, match="has 66 bytes, chunk_tokens=32 of uint32 take 132"):
        read_all(manifest)


def test_chunks_that_do_not_join_are_named(manifest):
    records = np.arange(40 * 33).reshape(40, 33) % 300
    shard = write_shard(manifest.parent, "shards/loose", "web", "train", records)
    edit(manifest, {"shards": (shard,)})
    assert read_all(manifest).shape == (1000, 33)
    with pytest.raises(ManifestError, match=r"loose: the chunks of row \d+ do not join"):
        open_train(manifest, seq_len=64).rows(np.arange(8))


@pytest.mark.parametrize("what", ["path", "sha256"])
def test_a_shard_listed_twice_is_refused(manifest, what):
    twin = manifests.load(manifest).shards[-1]
    edit_shard(manifest, {what: getattr(twin, what)})
    with pytest.raises(ManifestError, match=rf"\(web, train\) and .* have one {what}: a shard may"):
        open_train(manifest)


def test_empty_shards_do_no_harm(tmp_path):
    path = make_corpus(tmp_path / "corpus", {"web": (0, 5, 0)}, heldout={"web": (0, 2)})
    assert {*open_train(path).order.locate(np.arange(1000)).shard.tolist()} == {1}
    assert len(open_heldout(path)["web"]) == 2


def test_a_source_without_a_whole_row_is_refused(tmp_path):
    path = make_corpus(tmp_path / "corpus", {"web": (8,), "code": (3, 3)}, heldout={"code": (2,)})
    with pytest.raises(ManifestError) as e:
        open_train(path, seq_len=128)
    assert str(e.value) == (
        "source 'code' has not one row of seq_len=128: no shard has 4 chunks; "
        "lower seq_len, or build the corpus with more text"
    )
    with pytest.raises(ManifestError, match="held-out 'code' has not one row of seq_len=128"):
        open_heldout(path, seq_len=128)
    only_web = [Stage(None, (("web", 1), ("code", 0)))]
    assert train_rows(config(path, seq_len=128), only_web).rows(np.arange(9)).any()


def test_a_corpus_without_training_shards_is_refused(tmp_path):
    path = make_corpus(tmp_path / "corpus", {}, heldout={"web": (5,)})
    with pytest.raises(ManifestError, match="has no training shards"):
        open_train(path)
