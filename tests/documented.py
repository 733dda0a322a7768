"""A small corpus of known documents: shards with their tables, as `data_tools` packs them."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import small_corpus as corpus
from jaxlm.data import manifest as manifests
from jaxlm.data.documents import SCHEMA, TABLE, order_key, shard_of
from jaxlm.data.manifest import Mixture, Packing, Shard, Split
from jaxlm.data.synthetic import BOS_ID, PAD_ID
from jaxlm.data.tokenizer import open_tokenizer

SALT = "order"
CHUNK = 32
WORDS = ("中文", "句子", "从左到右。", "small ", "corpus ", "tests.\n", "def f(x):\n    ", "x + 1 ")

SOURCES: dict[tuple[str, Split], tuple[str, int, int]] = {
    ("web.q0", "train"): ("web", 40, 2),
    ("web.q1", "train"): ("web", 60, 3),
    ("web", "heldout"): ("web", 12, 1),
    ("code", "train"): ("code", 30, 1),
}
"""(Source, split) -> (type, documents, shards)."""


class Made(NamedTuple):
    """A document as it went in."""

    id: str
    source: str
    split: Split
    text: str
    ids: tuple[int, ...]


def make(root: Path, packing: Packing = "concat") -> tuple[Path, list[Made]]:
    """Writes the corpus; returns its manifest and its documents."""
    path = corpus.make_corpus(root, {"web.q0": [1]}, chunk_tokens=CHUNK, tokenizer=True)
    manifest, rng = manifests.load(path), random.Random(0)
    tokenizer = open_tokenizer(root / manifest.tokenizer)
    documents, shards = list[Made](), list[Shard]()
    for (source, split), (kind, count, number) in SOURCES.items():
        mine = []
        for _ in range(count):
            text = "".join(rng.choices(WORDS, k=rng.choice((1, 4, 9, 25, 60))))
            ids = tuple(tokenizer.encode(text))
            mine.append(Made(rng.randbytes(16).hex(), source, split, text, ids))
        documents += mine
        mine.sort(key=_key)
        for k in range(number):
            name = f"{source}.{split}-{k:05d}-of-{number:05d}"
            here = [d for d in mine if shard_of(_key(d), number) == k]
            shards.append(_write(root, name, kind, here, packing))
    made = replace(
        manifest,
        packing=packing,
        mixture=Mixture((), 4.0, 0.01, {name: 1.0 for name, split in SOURCES if split == "train"}),
        shards=tuple(shards),
        recipe={"pack": {"salt": SALT}},
    )
    manifests.save(made, path)
    return path, documents


def _key(document: Made) -> int:
    return order_key(bytes.fromhex(document.id), SALT)


def _write(root: Path, name: str, kind: str, documents: list[Made], packing: Packing) -> Shard:
    pieces = list(_concat(documents) if packing == "concat" else _best_fit(documents))
    end = max(start + 1 + len(ids) for _, _, start, ids in pieces)
    stream = np.full(-(-end // CHUNK) * CHUNK + 1, PAD_ID, np.uint16)
    if packing == "best_fit":
        stream[-1] = BOS_ID
    for _, _, start, ids in pieces:
        stream[start : start + 1 + len(ids)] = (BOS_ID, *ids)
    (root / "shards" / name).mkdir()
    rows = [
        {
            "key": _key(d),
            "id": bytes.fromhex(d.id),
            "content_hash": bytes(16),
            "source": d.source.partition(".")[0],
            "type": kind,
            "split": d.split,
            "shard": name,
            "start": start,
            "tokens": len(ids),
            "path": f"{kind}.jsonl",
            "offset": i,
            "quality": 0.5,
            "cluster": bytes.fromhex(d.id) if i % 5 == 0 else None,
            "skip": skip,
        }
        for i, (d, skip, start, ids) in enumerate(pieces)
    ]
    table = root / "shards" / name / TABLE
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), table, row_group_size=8)
    source, split = documents[0].source, documents[0].split
    records = corpus.to_chunks(stream, CHUNK)
    shard = corpus.write_shard(root, f"shards/{name}/chunks.array_record", source, split, records)
    return replace(shard, type=kind, documents=len(documents), table_bytes=table.stat().st_size)


Piece = tuple[Made, int, int, tuple[int, ...]]
"""A document, the tokens of it before the piece, the piece's start in the stream, its tokens."""


def _concat(documents: list[Made]) -> Iterator[Piece]:
    start = 0
    for d in documents:
        yield d, 0, start, d.ids
        start += 1 + len(d.ids)


def _best_fit(documents: list[Made]) -> Iterator[Piece]:
    """Not the best fit, but as its result: pieces of at most a chunk, each in one chunk, in any
    order."""
    most, start = CHUNK - 1, 0
    pieces = [
        (d, skip, d.ids[skip : skip + most])
        for d in documents
        for skip in range(0, len(d.ids), most)
    ]
    random.Random(1).shuffle(pieces)
    for d, skip, ids in pieces:
        if start % CHUNK + 1 + len(ids) > CHUNK:
            start = -(-start // CHUNK) * CHUNK
        yield d, skip, start, ids
        start += 1 + len(ids)
