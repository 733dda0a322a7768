"""Parquet tables with one row group in memory: read by row groups, or written as they grow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.stage import Input

ROWS = 4096
"""Of a table that grows, held in memory before they are written."""


def row_groups(files: Iterable[Input], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The row groups of tables, in order."""
    for file in files:
        with pq.ParquetFile(file.path) as table:
            for group in range(table.num_row_groups):
                yield table.read_row_group(group, columns=list(columns))


class GrowingTable:
    """Rows of one schema, a row group for every `ROWS` of them; no file when there are none."""

    def __init__(self, path: Path, schema: pa.Schema):
        self._path, self._schema = path, schema
        self._rows: list[Mapping[str, object]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: Mapping[str, object]) -> None:
        """Appends a row."""
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            writer = self._writer or pq.ParquetWriter(self._path, self._schema, compression="zstd")
            self._writer = writer
            writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
