"""The document table: both look-ups, over several shards and row groups."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxlm.data.documents import SCHEMA, TABLE, Documents, Entry, order_key, shard_of
from jaxlm.data.manifest import VERSION, Manifest, Shard, Split

SALT = "order"
SHARDS = 3


def write(root: Path, source: str, split: Split, ids: list[bytes]) -> list[Shard]:
    """Tables of one source's split, in small row groups; the second shard may be empty."""
    rng = random.Random(source)
    shards = []
    ordered = sorted(ids, key=lambda id: order_key(id, SALT))
    groups = itertools.groupby(ordered, key=lambda id: shard_of(order_key(id, SALT), SHARDS))
    for k, group in groups:
        name = f"{source}.{split}-{k}"
        rows, start = [], 0
        for id in group:
            tokens = rng.randrange(1, 30)
            values = [order_key(id, SALT), id, id[::-1], source, "web", split, name, start, tokens]
            rows.append(dict(zip(SCHEMA.names, [*values, "f.jsonl", 7], strict=True)))
            start += tokens + 1
        (root / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), root / name / TABLE, row_group_size=16)
        shard = f"{name}/chunks.array_record"
        shards.append(Shard(shard, source, "web", split, 9, start, 0, 0, ""))
    return shards


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> tuple[Documents, list[Shard], list[bytes]]:
    root = tmp_path_factory.mktemp("documents")
    rng = random.Random(0)
    ids = [rng.randbytes(16) for _ in range(400)]
    shards = write(root, "a", "train", ids[:200])
    shards += write(root, "a", "heldout", ids[200:203])
    shards += write(root, "b", "train", ids[203:])
    recipe = {"pack": {"salt": SALT}}
    manifest = Manifest(VERSION, "t", "h", 9, 1, 3, "uint16", 32, tuple(shards), recipe, {})
    return Documents(root, manifest), shards, ids


def test_by_id(corpus):
    documents, _, ids = corpus
    for i, id in enumerate(ids):
        entry = documents.by_id(id.hex())
        assert entry is not None and entry.id == id.hex()
        assert entry.content_hash == id[::-1].hex()
        assert (entry.source, entry.split) == (
            ("a", "train") if i < 200 else ("a", "heldout") if i < 203 else ("b", "train")
        )
        assert (entry.path, entry.offset) == ("f.jsonl", 7)


def test_an_id_that_is_not_there(corpus):
    documents, _, _ = corpus
    rng = random.Random(1)
    assert all(documents.by_id(rng.randbytes(16).hex()) is None for _ in range(50))


def test_spans(corpus):
    documents, shards, _ = corpus
    rng = random.Random(2)
    for shard in shards:
        everything = documents.in_span(shard, 0, shard.tokens)
        for _ in range(20):
            start = rng.randrange(shard.tokens)
            stop = start + rng.randrange(1, 100)
            expected = [e for e in everything if overlaps(e, start, stop)]
            assert expected and documents.in_span(shard, start, stop) == expected
        assert documents.in_span(shard, shard.tokens, shard.tokens + 50) == []  # padding


def overlaps(entry: Entry, start: int, stop: int) -> bool:
    return entry.start < stop and entry.start + 1 + entry.tokens > start


def test_the_order_does_not_move():
    """Where every document of every corpus lies hangs on this: it may not change."""
    assert order_key(bytes(range(16)), "order") == 0x455199E286A0F298
    assert [shard_of(k, 3) for k in (0, 2**64 // 3, 2**64 // 3 + 1, 2**64 - 1)] == [0, 0, 1, 2]
