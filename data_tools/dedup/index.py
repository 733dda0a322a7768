"""What near dedup keeps of each document: its facts, and the keys of its bands in order.

    facts.npy      FACT[N]          every document: row = place
    sources.json   (name, type) of the sources that `source` of a fact counts in
    keys.npy       uint64[M]        sorted: keys of the bands, and the content hash as one more
    rows.npy       uint32[M, 2]     of each key: the next band's key (low half), the document's row

Both are written without compression: hashes do not compress, and later stages map the files into
memory to read a range of keys, or some rows, of each partition.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data_tools.dedup.config import BandConfig, ShingleConfig
from data_tools.dedup.minhash import band_keys, signatures
from data_tools.dedup.shingles import batches, shingles, takes_part
from data_tools.dedup.units import VERSION
from data_tools.hashes import words
from data_tools.row_groups import row_groups
from data_tools.stage import Partition, Report, Stage

FACT = np.dtype(
    [
        ("id", ">u8", 2),
        ("content", ">u8", 2),
        ("read", ">u8", 2),
        ("quality", "<f8"),
        ("length", "<u4"),
        ("source", "<u4"),
    ]
)
"""Of one document: three hashes whose words have the order of their bytes, and what decides which
document of a cluster stays; `length` in characters."""


@dataclass(frozen=True)
class IndexConfig:
    """What the index depends on."""

    shingles: ShingleConfig
    candidates: BandConfig


def index_partition(partition: Partition[IndexConfig], out: Path) -> Report:
    """Writes the four files; needs 650 bytes a document, and one row group of text."""
    found: dict[tuple[str, str], int] = {}
    documents: Counter[str] = Counter()
    facts = [np.empty(0, FACT)]
    keys = [np.empty(0, np.uint64)]
    rows = [np.empty((0, 2), np.uint32)]
    first = 0
    for group in row_groups(partition.inputs["documents"], COLUMNS):
        sources, texts = group["source"].to_pylist(), group["text"].to_pylist()
        documents.update(sources)
        origins = zip(sources, group["type"].to_pylist(), strict=True)
        facts.append(_facts(group, texts, [found.setdefault(o, len(found)) for o in origins]))
        for key_M, row_M2 in _records(group, texts, facts[-1], partition.config):
            keys.append(key_M)
            rows.append(row_M2 + np.array([0, first], np.uint32))
        first += len(group)
    key_M, row_M2 = np.concatenate(keys), np.concatenate(rows)
    order = np.argsort(key_M, kind="stable")
    np.save(out / "keys.npy", key_M[order])
    np.save(out / "rows.npy", row_M2[order])
    np.save(out / "facts.npy", np.concatenate(facts))
    (out / "sources.json").write_text(json.dumps(list(found)), encoding="utf-8")
    return {"documents": dict(documents), "records": len(key_M)}


COLUMNS = ("id", "content_hash", "read_hash", "text", "source", "type", "quality")


def by_kind(
    types: Sequence[str], rows: Iterable[int], config: ShingleConfig
) -> Iterator[tuple[bool, list[int]]]:
    """(Whether it is code, rows): those of `rows` that are compared by similarity, in order."""

    def kind(row: int) -> bool | None:
        return types[row] in config.code_types if takes_part(types[row], config) else None

    for code, run in itertools.groupby(rows, kind):
        if code is not None:
            yield code, list(run)


def _facts(group: pa.Table, texts: Sequence[str], sources: Sequence[int]) -> np.ndarray:
    facts = np.empty(len(group), FACT)
    facts["id"], facts["content"] = words(group["id"]), words(group["content_hash"])
    facts["read"] = words(group["read_hash"])
    facts["quality"] = group["quality"].to_numpy()
    facts["length"] = [len(text) for text in texts]
    facts["source"] = sources
    return facts


def _records(
    group: pa.Table,
    texts: Sequence[str],
    facts: np.ndarray,
    config: IndexConfig,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (keys, (next key, row in the group))."""
    row_N = np.arange(len(group))
    content_N = facts["content"][:, 0].astype(np.uint64)
    yield content_N, np.stack([content_N.astype(np.uint32), row_N.astype(np.uint32)], 1)
    bands = config.candidates
    for code, rows in by_kind(group["type"].to_pylist(), row_N.tolist(), config.shingles):
        for batch in batches([len(texts[i]) for i in rows]):
            chosen = rows[batch]
            hash_S, bounds = shingles([texts[i] for i in chosen], code, config.shingles)
            full_T = np.flatnonzero(np.diff(bounds))
            if not len(full_T):
                continue
            bounds = np.append(bounds[full_T], len(hash_S))
            count = bands.bands * bands.rows
            signature_KT = signatures(hash_S.astype(np.uint32), bounds, count, bands.seed)
            key_BT = band_keys(signature_KT, bands.bands)
            row_BT = np.broadcast_to(np.array(chosen, np.uint32)[full_T], key_BT.shape)
            next_BT = np.roll(key_BT, -1, axis=0).astype(np.uint32)
            yield key_BT.ravel(), np.stack([next_BT.ravel(), row_BT.ravel()], 1)


INDEX = Stage("near_index", f"3 {VERSION}", index_partition)
