"""The text that the tokenizer is trained on: pieces chosen by hash, an equal share a type."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, digest
from data_tools.drops import standing
from data_tools.heldout import HeldoutConfig, read_relatives
from data_tools.restored import Restored
from data_tools.stage import Partition, Report, Stage

PIECE_BYTES = 4_000
"""The trainer drops lines over 4,192 bytes without an error."""

UNTRAINABLE = {ord("\u2581"): None, ord("\u2585"): None}
"""SentencePiece's own marks: it takes U+2581 for a space and skips a line with U+2585."""

SCHEMA = pa.schema([("type", pa.string()), ("text", pa.large_string())])


@dataclass(frozen=True)
class SampleConfig:
    """What the sample of a partition depends on."""

    share: float
    """Of the pieces of its type to take."""
    heldout: HeldoutConfig
    restored: Restored
    """Documents that stay against a verdict."""


def quotas(bytes_by_type: Mapping[str, int], sample_bytes: int) -> dict[str, int]:
    """Bytes to take of each type: equal, and what a short type leaves is shared by the others."""
    found: dict[str, int] = {}
    left = sample_bytes
    for i, (size, kind) in enumerate(sorted((n, t) for t, n in bytes_by_type.items())):
        found[kind] = min(size, left // (len(bytes_by_type) - i))
        left -= found[kind]
    return found


def sample_partition(partition: Partition[SampleConfig], out: Path) -> Report:
    """Writes sample.parquet: the chosen pieces of the documents that are trained on."""
    config = partition.config
    rows: list[dict[str, str]] = []
    taken: Counter[str] = Counter()
    inputs = partition.inputs
    relatives = read_relatives(inputs["relatives"])
    for document in standing(inputs["documents"], inputs["verdicts"], config.restored):
        if not isinstance(document, Document):
            continue
        if config.heldout.holds((document.read_hash, *relatives.get(document.id, ()))):
            continue
        for i, piece in enumerate(pieces(document.text)):
            if _falls_below(config.share, document.content_hash.hex(), i):
                rows.append({"type": document.type, "text": piece})
                taken[document.type] += len(piece.encode())
    table = pa.Table.from_pylist(rows, SCHEMA)
    pq.write_table(table, out / "sample.parquet", compression="zstd")
    return {"bytes": dict(taken)}


def pieces(text: str) -> Iterator[str]:
    """The text in order, cut at newlines where it can be, at most `PIECE_BYTES` each."""
    held, size = [], 0
    for line in text.translate(UNTRAINABLE).splitlines(keepends=True):
        for part in _short(line):
            length = len(part.encode())
            if size + length > PIECE_BYTES:
                yield "".join(held)
                held, size = [], 0
            held.append(part)
            size += length
    if held:
        yield "".join(held)


def _short(line: str) -> Iterator[str]:
    step = PIECE_BYTES if line.isascii() else PIECE_BYTES // 4  # a character is 4 bytes at most
    for i in range(0, len(line), step):
        yield line[i : i + step]


def _falls_below(share: float, content_hash: str, index: int) -> bool:
    return int.from_bytes(digest(content_hash, str(index))[:8], "big") < share * 2**64


SAMPLE = Stage("tokenizer_sample", "1", sample_partition)
