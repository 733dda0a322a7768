"""The document table: both look-ups, over several shards and row groups."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.stores import put_tree
from jaxlm.data.cache import CacheConfig
from jaxlm.data.documents import (
    SCHEMA,
    TABLE,
    Documents,
    Entry,
    order_key,
    read_table,
    shard_of,
    table_path,
)
from jaxlm.data.files import StoredFiles
from jaxlm.data.manifest import (
    VERSION,
    Manifest,
    ManifestError,
    Mixture,
    Packing,
    Shard,
    Split,
    sha256,
)

SALT = "order"
SHARDS = 3
LONGEST = 12
"""Tokens of a piece with packing `best_fit`."""


def write(root: Path, source: str, split: Split, ids: list[bytes], packing: Packing) -> list[Shard]:
    """Tables of one source's split, in small row groups; a shard without documents has none."""
    rng = random.Random(source)
    by_shard: dict[int, list[bytes]] = {}
    for id in sorted(ids, key=lambda id: order_key(id, SALT)):
        by_shard.setdefault(shard_of(order_key(id, SALT), SHARDS), []).append(id)
    shards = []
    for k, here in by_shard.items():
        name = f"{source}.{split}-{k}"
        pieces = [piece for id in here for piece in cut(id, rng.randrange(30), packing)]
        if packing == "best_fit":
            rng.shuffle(pieces)
        rows, start = [], 0
        for id, skip, tokens in pieces:
            values = [order_key(id, SALT), id, id[::-1], source, "web", split, name, start, tokens]
            cluster = id if id[0] % 2 else None
            values += ["f.jsonl", 7, id[0] / 255, cluster, skip]
            rows.append(dict(zip(SCHEMA.names, values, strict=True)))
            start += tokens + 1
        (root / name).mkdir()
        table = root / name / TABLE
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), table, row_group_size=16)
        size, shard = table.stat().st_size, f"{name}/chunks.array_record"
        shards.append(Shard(shard, source, "web", split, 9, start, 0, 0, "", len(here), size, ""))
    return shards


def cut(id: bytes, tokens: int, packing: Packing) -> list[tuple[bytes, int, int]]:
    """(id, skip, tokens) of each piece."""
    if packing == "concat":
        return [(id, 0, tokens)]
    starts = range(0, max(tokens, 1), LONGEST)
    return [(id, skip, min(tokens - skip, LONGEST)) for skip in starts]


class Corpus:
    """Tables of two sources, one with held-out documents, and their ids."""

    def __init__(self, root: Path, packing: Packing):
        rng = random.Random(0)
        self.ids = [rng.randbytes(16) for _ in range(400)]
        self.shards = write(root, "a", "train", self.ids[:200], packing)
        self.shards += write(root, "a", "heldout", self.ids[200:203], packing)
        self.shards += write(root, "b.q0", "train", self.ids[203:], packing)
        recipe = {"pack": {"salt": SALT}}
        self.manifest = Manifest(
            VERSION, "t", "h", 9, 1, 3, "uint16", 32, packing, Mixture((), 4.0, 0.01, {}),
            tuple(self.shards), recipe, {},
        )  # fmt: skip
        self.root, self.documents = root, Documents(self.manifest, partial(table_path, root))

    def everything(self, shard: Shard) -> list[Entry]:
        """A shard's whole table."""
        rows = pq.read_table((self.root / shard.path).with_name(TABLE)).drop(["key"]).to_pylist()
        for row in rows:
            row["id"], row["content_hash"] = row["id"].hex(), row["content_hash"].hex()
            row["cluster"] = row["cluster"] and row["cluster"].hex()
        return [Entry(**row) for row in rows]


@pytest.fixture(scope="module", params=["concat", "best_fit"])
def corpus(request, tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("documents"), request.param)


def test_by_id(corpus):
    entries = [e for shard in corpus.shards for e in corpus.everything(shard)]
    for i, id in enumerate(corpus.ids):
        found = corpus.documents.by_id(id.hex())
        assert found == sorted((e for e in entries if e.id == id.hex()), key=lambda e: e.skip)
        assert found[0].skip == 0
        assert {(e.source, e.split) for e in found} == {
            ("a", "train") if i < 200 else ("a", "heldout") if i < 203 else ("b.q0", "train")
        }
        assert found[0].cluster == (id.hex() if id[0] % 2 else None)
        assert (found[0].path, found[0].offset) == ("f.jsonl", 7)
    longest = max(len(corpus.documents.by_id(id.hex())) for id in corpus.ids)
    assert longest == (1 if corpus.manifest.packing == "concat" else 3)


def test_an_id_that_is_not_there(corpus):
    rng = random.Random(1)
    assert all(corpus.documents.by_id(rng.randbytes(16).hex()) == [] for _ in range(50))


def test_spans(corpus):
    rng = random.Random(2)
    for shard in corpus.shards:
        everything = corpus.everything(shard)
        for _ in range(50):
            start = rng.randrange(shard.tokens)
            stop = start + rng.randrange(1, 100)
            expected = [e for e in everything if has_text(e, start, stop)]
            assert corpus.documents.in_span(shard, start, stop) == expected
        whole = corpus.documents.in_span(shard, 0, shard.tokens)
        assert whole == [e for e in everything if e.tokens]
        assert corpus.documents.in_span(shard, shard.tokens, shard.tokens + 50) == []  # padding


def has_text(entry: Entry, start: int, stop: int) -> bool:
    return any(start <= entry.start + 1 + i < stop for i in range(entry.tokens))


def test_a_document_is_found_without_the_tables_of_other_shards(corpus):
    """By its key alone: a source has many tables, and they are large."""
    tables = [(corpus.root / shard.path).with_name(TABLE) for shard in corpus.shards]
    one = next(t for shard, t in zip(corpus.shards, tables, strict=True) if shard.source == "b.q0")
    (mine,) = (s for s, t in zip(corpus.shards, tables, strict=True) if t == one)
    id = corpus.everything(mine)[5].id
    key = order_key(bytes.fromhex(id), SALT)
    others = [
        t
        for shard, t in zip(corpus.shards, tables, strict=True)
        if t != one and not shard.path.startswith(f"a.train-{shard_of(key, SHARDS)}")
    ]
    assert len(others) > 3
    expected = corpus.documents.by_id(id)
    for table in others:
        table.rename(table.with_suffix(".away"))
    fresh = Documents(corpus.manifest, partial(table_path, corpus.root))
    try:
        assert fresh.by_id(id) == expected != []
    finally:
        for table in others:
            table.with_suffix(".away").rename(table)


# ---- damage --------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path) -> Corpus:
    """To be damaged."""
    return Corpus(tmp_path, "concat")


def read_first(corpus: Corpus, manifest: Manifest) -> list[Callable[[], object]]:
    """Each way to read the table of the first shard."""
    shard, table = manifest.shards[0], partial(table_path, corpus.root)
    id = min(corpus.ids[:200], key=lambda id: order_key(id, SALT)).hex()
    return [
        lambda: Documents(manifest, table).in_span(shard, 0, shard.tokens),
        lambda: Documents(manifest, table).by_id(id),
        lambda: read_table(corpus.root, shard, SCHEMA.names),
    ]


def refused(corpus: Corpus, manifest: Manifest) -> str:
    """What each way is refused with."""
    messages = set()
    for read in read_first(corpus, manifest):
        with pytest.raises(ManifestError) as e:
            read()
        messages.add(str(e.value))
    (message,) = messages
    directory = (corpus.root / manifest.shards[0].path).parent
    assert f"or remove {directory} and build the corpus again" in message
    return message


def first_tables(corpus: Corpus) -> list[Path]:
    return [(corpus.root / shard.path).with_name(TABLE) for shard in corpus.shards[:2]]


def test_a_table_that_is_missing_or_of_another_size_is_named(damaged):
    mine, other = first_tables(damaged)
    mine.unlink()
    assert refused(damaged, damaged.manifest).startswith(f"{mine}: is missing; ")
    other.rename(mine)
    message = refused(damaged, damaged.manifest)
    sizes = [shard.table_bytes for shard in damaged.shards[:2]]
    assert f"{mine}: {sizes[1]} bytes, the manifest says {sizes[0]}; " in message
    assert "`python -m data_tools verify` tells of all damage" in message


def test_the_table_of_another_shard_is_refused_if_it_has_the_same_size(damaged):
    mine, other = first_tables(damaged)
    other.rename(mine)
    first = replace(damaged.shards[0], table_bytes=damaged.shards[1].table_bytes)
    made = replace(damaged.manifest, shards=(first, *damaged.shards[1:]))
    assert f"{mine}: is the table of a.train-1; " in refused(damaged, made)


def test_a_table_that_cannot_be_read_is_named(damaged):
    mine, _ = first_tables(damaged)
    mine.write_bytes(bytes(mine.stat().st_size))
    assert f"{mine}: cannot be read: " in refused(damaged, damaged.manifest)


def test_a_flipped_bit_is_no_other_error(damaged):
    """What reads as if it were whole is for `verify` to find."""
    mine, _ = first_tables(damaged)
    whole, rng, found = mine.read_bytes(), random.Random(0), 0
    for _ in range(200):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        mine.write_bytes(data)
        for read in read_first(damaged, damaged.manifest):
            try:
                read()
            except ManifestError:
                found += 1
    assert found > 30


def test_a_recipe_without_the_salt_is_refused(corpus):
    for recipe in ({}, {"pack": None}, {"pack": {"salt": 5}}):
        made = replace(corpus.manifest, recipe=recipe)
        with pytest.raises(ManifestError, match=r"recipe\.pack\.salt=(None|5): must be a str; "):
            Documents(made, partial(table_path, corpus.root)).by_id("0" * 32)


def test_the_order_does_not_move():
    """Where every document of every corpus lies hangs on this: it may not change."""
    assert order_key(bytes(range(16)), "order") == 0x455199E286A0F298
    assert [shard_of(k, 3) for k in (0, 2**64 // 3, 2**64 // 3 + 1, 2**64 - 1)] == [0, 0, 1, 2]


def test_tables_of_an_object_store(s3, corpus, tmp_path):
    url = put_tree(s3, "tables", corpus.root)
    summed = tuple(
        replace(s, table_sha256=sha256((corpus.root / s.path).with_name(TABLE)))
        for s in corpus.shards
    )
    stored = replace(corpus.manifest, shards=summed)
    files = StoredFiles(stored, url, CacheConfig(directory=str(tmp_path)))
    fetched = Documents(stored, files.table)
    for id in corpus.ids[::50]:
        assert fetched.by_id(id.hex()) == corpus.documents.by_id(id.hex()) != []
