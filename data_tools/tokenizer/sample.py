"""The text that the tokenizer is trained on: pieces chosen by hash, in the mixture's proportions.

Two stages: `tokenizer_survey` counts what there is, and `tokenizer_sample` takes a share of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from data_tools.document import Document, digest
from data_tools.drops import standing
from data_tools.heldout import HeldoutConfig, Text, read_relatives
from data_tools.mixture import MixtureStageConfig
from data_tools.restored import Restored
from data_tools.row_groups import GrowingTable
from data_tools.stage import Partition, Report, Stage

PIECE_BYTES = 4_000
"""The trainer drops lines over 4,192 bytes without an error."""

UNTRAINABLE = {ord("\u2581"): None, ord("\u2585"): None}
"""SentencePiece's own marks: it takes U+2581 for a space and skips a line with U+2585."""

SCHEMA = pa.schema([("type", pa.string()), ("text", pa.large_string())])


@dataclass(frozen=True)
class SurveyConfig:
    """What may be trained on, in a partition."""

    heldout: HeldoutConfig
    restored: Restored
    """Documents that stay against a verdict."""


@dataclass(frozen=True)
class SampleConfig:
    """What the sample of a partition depends on."""

    share: float
    """Of the pieces of its type to take."""
    heldout: HeldoutConfig
    restored: Restored
    """Documents that stay against a verdict."""


def proportions(stages: Sequence[MixtureStageConfig]) -> dict[str, float]:
    """Type -> share of the whole run, whose stages may have other weights; empty without stages."""
    found: dict[str, float] = {}
    start = 0.0
    for stage in stages:
        total = sum(weight for _, weight in stage.weights)
        for kind, weight in stage.weights:
            share = weight / total * (stage.until - start)
            found[kind] = found.get(kind, 0.0) + share
        start = stage.until
    return found


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


def survey_partition(partition: Partition[SurveyConfig], out: Path) -> Report:
    """Counts the bytes of text of the documents that are trained on; writes nothing."""
    config = partition.config
    return {"text_bytes": sum(len(d.text.encode()) for d in _trained(partition, config))}


def sample_partition(partition: Partition[SampleConfig], out: Path) -> Report:
    """Writes sample.parquet: the chosen pieces of the documents that are trained on."""
    config = partition.config
    taken: Counter[str] = Counter()
    with GrowingTable(out / "sample.parquet", SCHEMA) as table:
        for document in _trained(partition, config):
            for i, piece in enumerate(pieces(document.text)):
                if _falls_below(config.share, document.content_hash.hex(), i):
                    table.add({"type": document.type, "text": piece})
                    taken[document.type] += len(piece.encode())
    return {"bytes": dict(taken)}


def _trained(partition: Partition[Any], config: SurveyConfig | SampleConfig) -> Iterator[Document]:
    """The documents that stay and are not held out."""
    inputs = partition.inputs
    relatives = read_relatives(inputs["relatives"])
    for document in standing(inputs["documents"], inputs["verdicts"], config.restored):
        if isinstance(document, Document):
            own = Text(document.read_hash, document.type)
            if not config.heldout.holds((own, *relatives.get(document.id, ()))):
                yield document


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


SURVEY = Stage("tokenizer_survey", "1", survey_partition)
SAMPLE = Stage("tokenizer_sample", "2", sample_partition)
