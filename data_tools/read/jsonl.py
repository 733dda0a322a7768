"""JSON lines, plain or compressed: an object a line."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_tools.read.charset import decode, undecodable
from data_tools.read.format import Span
from data_tools.read.lines import Line, read_lines
from data_tools.read.record import WHOLE_FILE, Bad, Record
from data_tools.source import SourceConfig


def read_jsonl(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """A record a line; blank lines are none. Every other line that gives no text is bad."""
    for found in read_values(path, source, span):
        yield found if isinstance(found, Bad) else _record(*found, source)


def read_values(path: Path, source: SourceConfig, span: Span) -> Iterator[tuple[Any, Line] | Bad]:
    """The JSON value of each line that is not blank, with the line."""
    empty = True
    for line in read_lines(path, span, source.max_record_bytes):
        if isinstance(line, Bad):
            empty = False
            yield line
        elif line.data.strip():
            empty = False
            yield _value(line, source)
    if empty and span.start == 0:
        yield Bad(WHOLE_FILE, "empty file")


def _value(line: Line, source: SourceConfig) -> tuple[Any, Line] | Bad:
    data = line.data if line.offset else line.data.removeprefix(codecs.BOM_UTF8)
    try:
        return json.loads(decode(data, source.encoding)), line
    except UnicodeDecodeError as e:
        return undecodable(line.place, source.encoding, e)
    except (ValueError, RecursionError) as e:
        return Bad(line.place, "broken JSON", str(e))


def _record(value: Any, line: Line, source: SourceConfig) -> Record | Bad:
    if not isinstance(value, dict):
        return Bad(line.place, "not a JSON object", type(value).__name__)
    if source.text_field not in value:
        detail = f"fields here: {', '.join(list(value)[:10])}"
        return Bad(line.place, f"no field {source.text_field!r}", detail)
    text = value[source.text_field]
    if not isinstance(text, str):
        return Bad(line.place, f"{source.text_field!r} is not a string", type(text).__name__)
    return Record(text, line.place, line.offset, meta_of(value, source))


def meta_of(value: dict[str, Any], source: SourceConfig) -> dict[str, str]:
    """The fields of an object that its source keeps beside the text."""
    return {name: _plain(value[name]) for name in source.meta_fields if name in value}


def _plain(value: object) -> str:
    # ASCII escapes for what is not a string: nothing in meta can fail to be encoded
    return value if isinstance(value, str) else json.dumps(value)
