"""Parquet: a row is a record; spans are rows, cut between row groups."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.read.format import WHOLE, Span
from data_tools.read.record import WHOLE_FILE, Bad, Record, too_long
from data_tools.source import SourceConfig

BATCH_ROWS = 256
BATCH_BYTES = 32 << 20
"""Rows are taken together up to either, by the mean row of their row group."""


def cut_parquet(path: Path, size: int) -> list[Span]:
    """Runs of row groups of about `size` bytes; a file that cannot be understood is one span."""
    try:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
            sizes = [(g.num_rows, _stored_bytes(g)) for g in groups]
    except (pa.ArrowException, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise
        return [WHOLE]
    starts, row, held = [0], 0, 0
    for rows, stored in sizes:
        if held >= size and row > starts[-1]:
            starts.append(row)
            held = 0
        row, held = row + rows, held + stored
    return [Span(a, b) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def _stored_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def read_parquet(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """A record a row, in the place "row N" from 1. A fault ends the span there."""
    row = span.start
    try:
        with pq.ParquetFile(path) as file:
            fault = _schema_fault(file.schema_arrow, source)
            if fault is not None:
                yield fault
                return
            if file.metadata.num_rows == 0:
                yield Bad(WHOLE_FILE, "empty file")
            for batch in _batches(file, source, span):
                texts = batch.column(source.text_field)
                metas = {m: batch.column(m) for m in batch.schema.names if m in source.meta_fields}
                for i, text in enumerate(texts):
                    yield _record(text, row, {m: v[i] for m, v in metas.items()}, source)
                    row += 1
    except (pa.ArrowException, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise
        place = f"row {row + 1}" if row else WHOLE_FILE
        yield Bad(place, "damaged Parquet file", str(e).splitlines()[0])


def _batches(file: pq.ParquetFile, source: SourceConfig, span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of a span, a few at a time."""
    columns = [m for m in source.meta_fields if m in file.schema_arrow.names]
    columns = list(dict.fromkeys([source.text_field, *columns]))
    first = 0
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        last = first + group.num_rows
        begin, end = max(first, span.start), last if span.end is None else min(last, span.end)
        if begin < end:
            row_bytes = group.total_byte_size // max(group.num_rows, 1)
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)))
            row = first
            for batch in file.iter_batches(rows, row_groups=[i], columns=columns):
                part = batch[max(begin - row, 0) : max(end - row, 0)]
                if part.num_rows:
                    yield part
                row += batch.num_rows
        first = last


def _schema_fault(schema: pa.Schema, source: SourceConfig) -> Bad | None:
    text_field = source.text_field
    for name in (text_field, *source.meta_fields):
        if schema.names.count(name) > 1:
            return Bad(WHOLE_FILE, f"more than one column {name!r}")
    if text_field not in schema.names:
        detail = f"columns here: {', '.join(schema.names[:10])}"
        return Bad(WHOLE_FILE, f"no field {text_field!r}", detail)
    kind = schema.field(text_field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return Bad(WHOLE_FILE, f"{text_field!r} is not a string", str(kind))
    return None


def _record(
    text: pa.Scalar, row: int, meta: dict[str, pa.Scalar], source: SourceConfig
) -> Record | Bad:
    place = f"row {row + 1}"
    try:
        value = text.as_py()
        plain = {name: _plain(v) for name, v in meta.items()}
    except UnicodeDecodeError as e:
        return Bad(place, "not utf-8", str(e))
    if value is None:
        return Bad(place, f"{source.text_field!r} is not a string", "null")
    length = len(value.encode())
    if length > source.max_record_bytes:
        return too_long(place, length, source.max_record_bytes)
    return Record(value, place, row, plain)


def _plain(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):  # nanoseconds, years that Python does not know
        return str(value.cast(pa.string()))
