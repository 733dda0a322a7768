"""Documents that a recipe keeps against rules and verdicts, and the partitions that they are in."""

from collections.abc import Mapping, Sequence

import pyarrow.parquet as pq

from data_tools.document import DataError
from data_tools.stage import Input

type Restored = tuple[str, ...]
"""Ids, 32 hex digits each, of documents of one partition."""


def places(ids: Sequence[str], documents: Mapping[str, tuple[Input, ...]]) -> dict[str, Restored]:
    """Partition -> those of `ids` that are in its `documents`; `DataError` for an unknown id."""
    left = set(ids)
    found: dict[str, Restored] = dict.fromkeys(documents, ())
    for name, files in documents.items() if left else ():
        for file in files:
            column = pq.read_table(file.path, columns=["id"])["id"].to_pylist()
            here = left.intersection(id.hex() for id in column)
            found[name] += tuple(sorted(here))
            left -= here
    if left:
        raise DataError(
            f"config.restored: no document has the id {min(left)}; take it from the report, "
            "or from `python -m data_tools explain`"
        )
    return found
