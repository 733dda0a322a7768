"""Documents that do not stay: how corpus-wide stages name them, and the table of why each went."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop, read_tables
from data_tools.stage import Input
from data_tools.tally import Tally

EXCERPT_CHARACTERS = 1_000

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
    documents: Iterable[Input], verdicts: Iterable[Input], restored: Sequence[str] = ()
) -> Iterator[Document | tuple[Document, Drop]]:
    """The documents of a partition: those that stay, and the others with their `Drop`.

    `restored` has the ids (32 hex digits) of documents that stay against a verdict.
    """
    drops: dict[bytes, Drop] = {}
    for file in verdicts:
        columns = pq.read_table(file.path, schema=VERDICTS).to_pydict()
        rows = zip(columns["id"], columns["rule"], columns["detail"], strict=True)
        drops.update((id, Drop(rule, detail)) for id, rule, detail in rows)
    for id in restored:
        drops.pop(bytes.fromhex(id), None)
    for document in read_tables(i.path for i in documents):
        drop = drops.get(document.id)
        yield document if drop is None else (document, drop)


class Drops:
    """The drops of one partition."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, object]] = []
        self._tallies: dict[str, Tally] = {}

    def add(self, document: Document, drop: Drop) -> None:
        """Records why a document does not stay."""
        row = {name: getattr(document, name) for name in SCHEMA.names[:5]}
        # a name or a message from the text may hold half a character
        detail = drop.detail.encode(errors="replace").decode()
        excerpt = document.text[:EXCERPT_CHARACTERS]
        self._rows.append(row | {"rule": drop.rule, "detail": detail, "excerpt": excerpt})
        self._tallies.setdefault(drop.rule, Tally()).add(document)

    def save(self, directory: Path) -> None:
        """Writes dropped.parquet, unless nothing was dropped."""
        if self._rows:
            table = pa.Table.from_pylist(self._rows, SCHEMA)
            pq.write_table(table, directory / "dropped.parquet", compression="zstd")

    def report(self) -> dict[str, Any]:
        """By rule: the number of documents, and their tally."""
        return {
            "dropped": {rule: tally.documents for rule, tally in self._tallies.items()},
            "lost": {rule: tally.report() for rule, tally in self._tallies.items()},
        }
