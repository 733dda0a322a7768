"""The bad places of one partition: all of them in a table, some of them in the report."""

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from data_tools.read.record import Bad
from data_tools.row_groups import GrowingTable

SAMPLES = 20
"""Bad places that go into the report."""
DETAIL_CHARACTERS = 300
"""Kept of a detail, which may quote the file."""

SCHEMA = pa.schema([(name, pa.string()) for name in ("path", "place", "reason", "detail")])


class BadTable:
    """Writes bad places to a Parquet file, which is there only if something is bad."""

    def __init__(self, path: Path):
        self._table = GrowingTable(path, SCHEMA)
        self._samples: list[dict[str, str]] = []
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._table.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._table.__exit__(kind, error, at)

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
        self._table.add(row)
        self._counts[reason] += 1
        if len(self._samples) < SAMPLES:
            self._samples.append(row)

    def report(self) -> dict[str, Any]:
        """Counts by reason, and samples."""
        return {"bad": dict(self._counts), "bad_samples": self._samples}
