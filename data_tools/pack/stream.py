"""The stream of a shard as its records have it: read whole, and checked by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from jaxlm.data.manifest import Manifest

BLOCK_BYTES = 8 << 20
"""Of records, about, that are read at a time."""


class Damage(Exception):
    """Names a file of a shard, and what is wrong with it."""


class Stream(NamedTuple):
    """P pieces of documents: runs of text that each start with a BOS."""

    start_P: np.ndarray
    """int64[P]: places of the BOS."""
    tokens_P: np.ndarray
    """int64[P]: ids of text after them."""
    text_bytes: int | None
    """That the ids stand for, where the sizes of the pieces of text are known."""


def read_stream(path: Path, manifest: Manifest, chunks: int, sizes_V: np.ndarray | None) -> Stream:
    """Reads every record. `Damage` if one cannot be read, is of another length, has an id that is
    not in the vocabulary or does not join the next, or if padding does not stay at the end."""
    bos, pad = manifest.bos_id, manifest.pad_id
    after_pad = (pad, bos) if manifest.packing == "best_fit" else (pad,)
    if sizes_V is not None:
        sizes_V = sizes_V.copy()
        sizes_V[[bos, pad]] = 0
    starts, before = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    at = tokens = text_bytes = 0
    padded = False
    for run in _runs(path, manifest, chunks):
        boses, pads = np.flatnonzero(run == bos), np.flatnonzero(run == pad)
        next_pads = pads[pads < len(run) - 1] + 1
        if not np.isin(run[np.append(next_pads, 0) if padded else next_pads], after_pad).all():
            raise Damage(f"{path}: text follows padding")
        padded = bool(run[-1] == pad)
        starts.append(boses + at)
        # ids of text up to each BOS; their differences are the lengths of the pieces
        others = np.arange(len(boses)) + np.searchsorted(pads, boses)
        before.append(boses - others + tokens)
        at += len(run)
        tokens += len(run) - len(boses) - len(pads)
        if sizes_V is not None:
            text_bytes += int(sizes_V[run].sum(dtype=np.int64))
    tokens_P = np.diff(np.concatenate([*before, [tokens]]))
    return Stream(np.concatenate(starts), tokens_P, None if sizes_V is None else text_bytes)


def _runs(path: Path, manifest: Manifest, chunks: int) -> Iterator[np.ndarray]:
    """The stream in runs: ids[n]; with best_fit without the BOS that ends it."""
    reader = ArrayRecordReader(str(path), options="readahead_buffer_size:0,max_parallelism:0")
    if not reader.ok() or reader.num_records() != chunks:
        raise Damage(f"{path}: {reader.num_records()} records, the manifest says {chunks}")
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    record_bytes = (manifest.chunk_tokens + 1) * dtype.itemsize
    many = max(BLOCK_BYTES // record_bytes, 1)
    last = None
    for begin in range(0, chunks, many):
        try:
            records = reader.read(begin, min(begin + many, chunks))
        except RuntimeError as e:
            raise Damage(f"{path}: a record from {begin} on cannot be read: {e}") from None
        wrong = [begin + i for i, r in enumerate(records) if len(r) != record_bytes]
        if wrong:
            raise Damage(f"{path}: record {wrong[0]} is not of {record_bytes} bytes")
        ids = np.frombuffer(b"".join(records), dtype).reshape(len(records), -1)
        if ids.max() >= manifest.vocab_size:
            raise Damage(
                f"{path}: id {ids.max()} from record {begin} on, the vocabulary has "
                f"{manifest.vocab_size}"
            )
        ends = np.append(ids[0, 0] if last is None else last, ids[:-1, -1])
        torn = np.flatnonzero(ends != ids[:, 0])
        if torn.size:
            raise Damage(f"{path}: record {begin + torn[0]} does not start as the last one ended")
        if manifest.packing == "best_fit" and (ids[:, -1] != manifest.bos_id).any():
            raise Damage(f"{path}: a record from {begin} on needs the next: it ends with no BOS")
        yield ids[:, :-1].reshape(-1)
        last = ids[-1, -1]
    if last is not None and manifest.packing == "concat":
        yield np.array([last], dtype)
