"""Documents that were dropped: all of them in a table, some of them in the report."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import Document, Drop

SAMPLES = 5
"""Dropped documents a rule and partition that go into the report."""
SAMPLE_CHARACTERS = 200

SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("source", pa.string()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("rule", pa.string()),
        ("detail", pa.string()),
    ]
)


class Drops:
    """The drops of one partition."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, object]] = []
        self._counts: Counter[str] = Counter()
        self._samples: list[Mapping[str, object]] = []

    def add(self, document: Document, drop: Drop) -> None:
        """Records why a document does not stay."""
        where = {"source": document.source, "path": document.path, "offset": document.offset}
        why = {"rule": drop.rule, "detail": drop.detail}
        self._rows.append({"id": document.id} | where | why)
        self._counts[drop.rule] += 1
        if self._counts[drop.rule] <= SAMPLES:
            text = document.text[:SAMPLE_CHARACTERS]
            self._samples.append(where | why | {"text": text})

    def save(self, directory: Path) -> None:
        """Writes dropped.parquet, unless nothing was dropped."""
        if self._rows:
            table = pa.Table.from_pylist(self._rows, SCHEMA)
            pq.write_table(table, directory / "dropped.parquet", compression="zstd")

    def report(self) -> dict[str, Any]:
        """Counts by rule, and samples."""
        return {"dropped": dict(self._counts), "drop_samples": self._samples}
