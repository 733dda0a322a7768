"""From a step of training to the documents in its batch, and from a document to its steps.

Both are arithmetic (the order and its inverse, the lineage of steps), and a look-up in the document
tables. A row holds a document if one of its targets is a token of the text: every token of a corpus
is a target of exactly one row, so a document's rows are those that learn from it. No JAX here.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxlm import workdir
from jaxlm.config import Config
from jaxlm.data import fingerprint
from jaxlm.data.corpus import open_corpus
from jaxlm.data.documents import Documents, Entry
from jaxlm.data.manifest import Shard
from jaxlm.data.order import Location
from jaxlm.data.source import Shards, TrainRows
from jaxlm.errors import UserError
from jaxlm.lineage import Lineage
from jaxlm.site import Workdir


class Part(NamedTuple):
    """What a row holds of a document."""

    entry: Entry
    first: int
    """Number of its first token here in the document's text."""
    ids: np.ndarray
    """Its tokens that are targets of the row."""


class TracedRow(NamedTuple):
    """A row of a batch."""

    step: int
    """0: skipped."""
    row: int
    """Its number in the batch, -1: skipped."""
    position: int
    epoch: int
    """Of the source, counted from 0."""
    shard: Shard
    shard_row: int
    """Its number in the shard."""
    parts: list[Part]
    """Those with a target in the row, in order."""
    ids: np.ndarray
    """[T + 1], as the step got them."""


class Sight(NamedTuple):
    """A position at which a run comes to a row with a document's text."""

    position: int
    epoch: int
    shard_row: int
    step: int
    """0: skipped."""
    row: int
    """Number in the batch, -1: skipped."""


class Trace:
    """A run and its corpus, opened to look things up."""

    def __init__(self, cfg: Config, directory: Workdir):
        """`UserError` if `directory` holds no run, or the data is not the one it reads."""
        starts = workdir.history(directory)
        self.lineage = Lineage(starts)
        corpus = open_corpus(cfg)
        if not isinstance(corpus.train, TrainRows) or corpus.tokenizer is None:
            raise UserError("synthetic rows come from no documents; there is nothing to trace")
        digest = fingerprint.digest(corpus.train.fingerprint())
        if digest != starts[-1].data:
            raise UserError(
                f"{cfg.data.manifest}: with this config its rows have the fingerprint {digest}, "
                f"but {directory} was last started with {starts[-1].data}; give the run's own "
                "config and corpus"
            )
        self.done, self.end = workdir.reached(directory), cfg.end
        """Positions: where the run is, and where it ends."""
        self._tokenizer = corpus.tokenizer
        self._rows, self._seq_len = corpus.train, cfg.data.seq_len
        self._files = corpus.train.shards.files
        self._documents = Documents(self._files.manifest, self._files.table)

    @property
    def last_step(self) -> int:
        """The one that ends the run."""
        left = self.lineage.skips.rank(np.array([self.end])) - 1
        steps, _ = self.lineage.steps(self.lineage.skips.at(left))
        return int(steps[0])

    def step(self, step: int, row: int | None = None) -> list[TracedRow]:
        """The rows of a step's batch, or one of them. `UserError` if the run has none such."""
        if step > self.last_step:
            raise UserError(f"step {step}: this run has steps 1 to {self.last_step}")
        positions = self.lineage.batch(step)
        if row is not None:
            if not 0 <= row < len(positions):
                raise UserError(
                    f"row {row}: the batch of step {step} has rows 0 to {len(positions) - 1}"
                )
            positions = positions[[row]]
        return self.rows(positions)

    def rows(self, positions: np.ndarray) -> list[TracedRow]:
        """The rows at these positions. `UserError` for one that is not part of the run."""
        outside = (positions < 0) | (positions >= self.end)
        if outside.any():
            raise UserError(
                f"position {positions[outside][0]}: this run has positions 0 to {self.end - 1}"
            )
        steps, numbers = self.lineage.steps(positions)
        where = self._rows.order.locate(positions)
        ids = self._rows.rows(positions)
        found: dict[int, TracedRow] = {}
        for i in np.lexsort((where.row, where.shard, where.source)).tolist():  # tables in turn
            shard = self._rows.shard(int(where.source[i]), int(where.shard[i]))
            row = int(where.row[i])
            found[i] = TracedRow(
                step=int(steps[i]),
                row=int(numbers[i]),
                position=int(positions[i]),
                epoch=int(where.epoch[i]),
                shard=shard,
                shard_row=row,
                parts=self._parts(shard, row, ids[i]),
                ids=ids[i],
            )
        return [found[i] for i in range(len(positions))]

    def document(self, id: str) -> list[Entry]:
        """The pieces of a document, in order. `UserError` if the corpus has none of this id."""
        id = id.lower()
        if len(id) != 32 or not set(id) <= set("0123456789abcdef"):
            raise UserError(
                f"--document={id}: is no document id; write its 32 hex digits, as "
                "`jaxlm trace --step` prints them"
            )
        found = self._documents.by_id(id)
        if not found:
            raise UserError(
                f"--document={id}: this corpus has no such document; `python -m data_tools explain "
                f"{id} --workdir=DIR`, with the directory of its build, tells whether it was "
                "dropped, and why"
            )
        return found

    def sights(self, pieces: list[Entry]) -> list[Sight]:
        """All positions of the run with text of these pieces of a document, in order.

        None for a document that is held out, or not drawn before the end, or that lies behind the
        last whole row of its shard.
        """
        shard = self._shard(pieces[0])
        if shard.split != "train":
            return []
        order, rows = self._rows.order, self._shard_rows(pieces, shard)
        source = order.names.index(shard.source)
        at = self._rows.shards.by_source[shard.source].index(shard)
        epochs = np.arange(np.ceil(order.epochs(self.end)[shard.source]), dtype=np.int64)
        epoch, row = (a.ravel() for a in np.meshgrid(epochs, rows, indexing="ij"))
        where = Location(np.full_like(row, source), epoch, np.full_like(row, at), row)
        positions = order.position_of(where)
        steps, numbers = self.lineage.steps(np.maximum(positions, 0))  # -1: never drawn
        columns = (positions, epoch, row, steps, numbers)
        sights = (Sight(*values) for values in zip(*(c.tolist() for c in columns), strict=True))
        return sorted(sight for sight in sights if 0 <= sight.position < self.end)

    def text(self, pieces: list[Entry]) -> str:
        """The text of a document's pieces, of those in no row too."""
        shard, size = self._shard(pieces[0]), self._files.manifest.chunk_tokens
        chunks = Shards(self._files, shard.split, size)
        parts = [
            _part(entry, i * size, chunks.read([(shard, i)])[0])
            for entry in pieces
            for i in _targets(entry, size)
        ]
        return self.decode(*(part.ids for part in parts))

    def decode(self, *ids: np.ndarray) -> str:
        """The text of some ids."""
        return self._tokenizer.decode(np.concatenate([np.empty(0, int), *ids]).tolist())

    def _shard(self, entry: Entry) -> Shard:
        shards = self._files.manifest.shards
        return next(s for s in shards if Path(s.path).parent.name == entry.shard)

    def _shard_rows(self, pieces: list[Entry], shard: Shard) -> list[int]:
        """The whole rows of a shard with targets in these pieces."""
        rows = {row for piece in pieces for row in _targets(piece, self._seq_len)}
        return sorted(row for row in rows if row < self._rows.shards.rows_in(shard))

    def _parts(self, shard: Shard, row: int, ids: np.ndarray) -> list[Part]:
        start = row * self._seq_len
        found = self._documents.in_span(shard, start + 1, start + len(ids))
        return [_part(entry, start, ids) for entry in found]


def _targets(entry: Entry, size: int) -> range:
    """The rows, of so many targets, in which the text of a piece lies."""
    last = entry.start + entry.tokens - 1
    return range(entry.start // size, last // size + 1) if entry.tokens else range(0)


def _part(entry: Entry, start: int, ids: np.ndarray) -> Part:
    """`start`: of the row, in the shard's stream."""
    text = entry.start + 1 - start
    first = max(text, 1)  # the id before is no target here, but of the row before
    return Part(entry, entry.skip + first - text, ids[first : text + entry.tokens])
