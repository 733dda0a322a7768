"""Parquet: a row is a record."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig

BATCH_ROWS = 256


def read_parquet(path: Path, source: SourceConfig) -> Iterator[Record | Bad]:
    """A record a row; the line of a row is its number from 1. A fault ends the file there."""
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            fault = _schema_fault(file.schema_arrow, source)
            if fault is not None:
                yield fault
                return
            if file.metadata.num_rows == 0:
                yield Bad(0, "empty file")
            present = [m for m in source.meta_fields if m in file.schema_arrow.names]
            columns = list(dict.fromkeys([source.text_field, *present]))
            for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                metas = [batch.column(m) for m in present]
                for i, text in enumerate(batch.column(source.text_field)):
                    meta = {m: v[i] for m, v in zip(present, metas, strict=True)}
                    yield _record(text, row, meta, source)
                    row += 1
    except (pa.ArrowException, OSError) as e:
        yield Bad(row and row + 1, "damaged Parquet file", str(e).splitlines()[0])


def _schema_fault(schema: pa.Schema, source: SourceConfig) -> Bad | None:
    text_field = source.text_field
    for name in (text_field, *source.meta_fields):
        if schema.names.count(name) > 1:
            return Bad(0, f"more than one column {name!r}")
    if text_field not in schema.names:
        detail = f"columns here: {', '.join(schema.names[:10])}"
        return Bad(0, f"no field {text_field!r}", detail)
    kind = schema.field(text_field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return Bad(0, f"{text_field!r} is not a string", str(kind))
    return None


def _record(
    text: pa.Scalar, row: int, meta: dict[str, pa.Scalar], source: SourceConfig
) -> Record | Bad:
    try:
        value = text.as_py()
        plain = {name: _plain(v) for name, v in meta.items()}
    except UnicodeDecodeError as e:
        return Bad(row + 1, "not utf-8", str(e))
    if value is None:
        return Bad(row + 1, f"{source.text_field!r} is not a string", "null")
    return Record(value, row + 1, row, plain)


def _plain(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):  # nanoseconds, years that Python does not know
        return str(value.cast(pa.string()))
