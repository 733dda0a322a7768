"""The text that the tokenizer is trained on: pieces chosen by hash, in the mixture's proportions.

Two stages: `tokenizer_survey` counts what there is, and `tokenizer_sample` takes a share of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from data_tools.document import Document, digest
from data_tools.drops import standing
from data_tools.heldout import HeldoutConfig
from data_tools.restored import Restored
from data_tools.row_groups import GrowingTable
from data_tools.stage import Input, Partition, Report, Stage
from data_tools.tokenizer.words import BREAK

PIECE_BYTES = 4_000
"""The trainer is told to take so much, and the breaks between words; longer lines it would drop."""

UNTRAINABLE = {ord("\u2581"): None, ord("\u2585"): None, ord(BREAK): None}
"""Marks: SentencePiece takes U+2581 for a space and skips a line with U+2585, `BREAK` is ours."""

SCHEMA = pa.schema([("type", pa.string()), ("text", pa.large_string())])


@dataclass(frozen=True)
class TextConfig:
    """Which documents of a partition are trained on: those that stay and are not held out."""

    heldout: HeldoutConfig
    restored: Restored
    """Documents that stay against a verdict."""


@dataclass(frozen=True)
class SampleConfig:
    """What the sample of a partition depends on."""

    share: float
    """Of the pieces of its type to take."""
    text: TextConfig


def quotas(
    bytes_by_type: Mapping[str, int], sample_bytes: int, weights: Mapping[str, float]
) -> dict[str, int]:
    """Bytes to take of each type: by the weights, and what a short type leaves goes to the others,
    by theirs. Without weights all types are equal."""
    weights = weights or dict.fromkeys(bytes_by_type, 1.0)
    found = dict.fromkeys(bytes_by_type, 0)
    waiting = sorted(kind for kind in bytes_by_type if weights[kind] > 0)
    left = sample_bytes
    while waiting:
        total = sum(weights[kind] for kind in waiting)
        fair = {kind: int(left * (weights[kind] / total)) for kind in waiting}
        short = [kind for kind in waiting if bytes_by_type[kind] <= fair[kind]]
        if not short:
            return found | fair
        found |= {kind: bytes_by_type[kind] for kind in short}
        left -= sum(found[kind] for kind in short)
        waiting = [kind for kind in waiting if kind not in short]
    return found


def survey_partition(partition: Partition[TextConfig], out: Path) -> Report:
    """Counts the bytes of text of the documents that are trained on; writes nothing."""
    found = _trained_on(partition.inputs, partition.config)
    return {"text_bytes": sum(len(d.text.encode()) for d in found)}


def sample_partition(partition: Partition[SampleConfig], out: Path) -> Report:
    """Writes sample.parquet: the chosen pieces of the documents that are trained on."""
    config = partition.config
    taken: Counter[str] = Counter()
    with GrowingTable(out / "sample.parquet", SCHEMA) as table:
        for document in _trained_on(partition.inputs, config.text):
            for i, piece in enumerate(pieces(document.text)):
                if _falls_below(config.share, document.content_hash.hex(), i):
                    table.add({"type": document.type, "text": piece})
                    taken[document.type] += len(piece.encode())
    return {"bytes": dict(taken)}


def _trained_on(inputs: Mapping[str, tuple[Input, ...]], config: TextConfig) -> Iterator[Document]:
    for found in standing(inputs["documents"], inputs["verdicts"], config.restored):
        if isinstance(found, Document) and not config.heldout.holds(found.read_hash, found.type):
            yield found


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


SURVEY = Stage("tokenizer_survey", "2", survey_partition)
SAMPLE = Stage("tokenizer_sample", "3", sample_partition)
