"""The bad places of one partition: all of them in a table, some of them in the report."""

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.read.record import Bad

SAMPLES = 20
"""Bad places that go into the report."""
ROWS = 10_000
"""Held in memory before they are written: a file may be bad on every line."""
DETAIL_CHARACTERS = 300
"""Kept of a detail, which may quote the file."""

SCHEMA = pa.schema([(name, pa.string()) for name in ("path", "place", "reason", "detail")])


class BadTable:
    """Writes bad places to a Parquet file, which is there only if something is bad."""

    def __init__(self, path: Path):
        self._path = path
        self._table: pq.ParquetWriter | None = None
        self._rows: list[dict[str, str]] = []
        self._samples: list[dict[str, str]] = []
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._flush()
        if self._table is not None:
            self._table.close()

    def add(self, path: str, bad: Bad) -> None:
        """Records a bad place of a file."""
        # a name or a message from the file may hold what UTF-8 cannot
        reason, detail = (s.encode(errors="replace").decode() for s in (bad.reason, bad.detail))
        row = {
            "path": path,
            "place": bad.place,
            "reason": reason,
            "detail": detail[:DETAIL_CHARACTERS],
        }
        self._rows.append(row)
        self._counts[reason] += 1
        if len(self._samples) < SAMPLES:
            self._samples.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def report(self) -> dict[str, Any]:
        """Counts by reason, and samples."""
        return {"bad": dict(self._counts), "bad_samples": self._samples}

    def _flush(self) -> None:
        if not self._rows:
            return
        self._table = self._table or pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        self._table.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows.clear()
