"""From a step of training to the documents in its batch, and where they came from."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxlm.config import Config
from jaxlm.data.corpus import open_corpus
from jaxlm.data.documents import Documents, Entry
from jaxlm.data.source import TrainRows
from jaxlm.errors import UserError


class TracedRow(NamedTuple):
    """A row of a batch."""

    position: int
    source: str
    epoch: int
    shard: str
    row: int
    """Number of the row in the shard."""
    documents: list[Entry]
    """Those with a token in the row, in order."""
    text: str


def trace(cfg: Config, first: int, count: int) -> Iterator[TracedRow]:
    """The rows at positions first, first + 1, ... in the order of a run."""
    corpus = open_corpus(cfg)
    rows = corpus.train
    if not isinstance(rows, TrainRows) or corpus.tokenizer is None:
        raise UserError("synthetic rows come from no documents; there is nothing to trace")
    manifest = Path(cfg.data.manifest)
    documents = Documents(manifest.parent, rows.shards.manifest)
    positions = np.arange(first, first + count)
    where = rows.order.locate(positions)
    for i, ids in enumerate(rows.rows(positions)):
        shard = rows.shard(int(where.source[i]), int(where.shard[i]))
        start = int(where.row[i]) * cfg.data.seq_len
        yield TracedRow(
            position=first + i,
            source=shard.source,
            epoch=int(where.epoch[i]),
            shard=shard.path,
            row=int(where.row[i]),
            documents=documents.in_span(shard, start, start + cfg.data.seq_len + 1),
            text=corpus.tokenizer.decode(ids.tolist()),
        )
