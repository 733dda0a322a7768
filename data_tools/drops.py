"""Documents that do not stay: how corpus-wide stages name them, and the table of why each went."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop, read_tables
from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.restored import Restored
from data_tools.row_groups import GrowingTable
from data_tools.stage import Input
from data_tools.tally import Tally

TABLE = "dropped.parquet"
"""The output that holds a stage's drops."""

EXCERPT_CHARACTERS = 1_500
"""Kept of a document: what people are shown (`dropped.SHOWN_CHARACTERS`), and as much behind it as
masking needs to know what a cut goes through."""

VERDICTS = pa.schema([("id", pa.binary(16)), ("rule", pa.string()), ("detail", pa.string())])
"""What a stage over the whole corpus writes for each partition: the documents that go."""

SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("source", pa.string()),
        ("type", pa.string()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("rule", pa.string()),
        ("detail", pa.string()),
        ("excerpt", pa.string()),
    ]
)
"""`excerpt`: the first characters, as they are; only the stage `dropped` shows them, masked."""


def standing(
    documents: Iterable[Input], verdicts: Iterable[Input], restored: Restored = ()
) -> Iterator[Document | tuple[Document, Drop]]:
    """The documents of a partition: those that stay, and the others with their `Drop`.

    Those that are `restored` stay against a verdict, unless they say the same as a held-out text.
    Holds the verdicts on the partition in memory.
    """
    drops: dict[bytes, Drop] = {}
    for file in verdicts:
        columns = pq.read_table(file.path, schema=VERDICTS).to_pydict()
        rows = zip(columns["id"], columns["rule"], columns["detail"], strict=True)
        drops.update((id, Drop(rule, detail)) for id, rule, detail in rows)
    for id in map(bytes.fromhex, restored):
        if id in drops and drops[id].rule != HELDOUT_DUPLICATE:
            del drops[id]
    for document in read_tables(i.path for i in documents):
        drop = drops.get(document.id)
        yield document if drop is None else (document, drop)


class Drops:
    """The drops of one partition, written to dropped.parquet; no table when there are none."""

    def __init__(self, directory: Path) -> None:
        self._table = GrowingTable(directory / TABLE, SCHEMA)
        self._tallies: dict[str, Tally] = {}

    def add(self, document: Document, drop: Drop) -> None:
        """Records why a document does not stay."""
        row = {name: getattr(document, name) for name in SCHEMA.names[:5]}
        # a name or a message from the text may hold half a character
        detail = drop.detail.encode(errors="replace").decode()
        excerpt = document.text[:EXCERPT_CHARACTERS]
        self._table.add(row | {"rule": drop.rule, "detail": detail, "excerpt": excerpt})
        self._tallies.setdefault(drop.rule, Tally()).add(document)

    def report(self) -> dict[str, Any]:
        """By rule: the number of documents, and their tally."""
        return {
            "dropped": {rule: tally.documents for rule, tally in self._tallies.items()},
            "lost": {rule: tally.report() for rule, tally in self._tallies.items()},
        }

    def __enter__(self) -> Self:
        self._table.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._table.__exit__(*error)
