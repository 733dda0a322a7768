"""JSON lines, plain or compressed (`.gz`, `.zst`): an object a line."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from data_tools.read.lines import Line, read_lines
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig


def read_jsonl(path: Path, source: SourceConfig) -> Iterator[Record | Bad]:
    """A record a line; blank lines are none. Every other line that gives no text is bad."""
    found = False
    for line in read_lines(path):
        if isinstance(line, Bad):
            found = True
            yield line
        elif line.data.strip():
            found = True
            yield _record(line, source)
    if not found:
        yield Bad(0, "empty file")


def _record(line: Line, source: SourceConfig) -> Record | Bad:
    data = line.data.removeprefix(codecs.BOM_UTF8) if line.number == 1 else line.data
    try:
        value = json.loads(data.decode(source.encoding))
    except UnicodeDecodeError as e:
        return Bad(line.number, f"not {source.encoding}", f"byte {data[e.start]:#04x} at {e.start}")
    except (ValueError, RecursionError) as e:
        return Bad(line.number, "broken JSON", str(e))
    if not isinstance(value, dict):
        return Bad(line.number, "not a JSON object", type(value).__name__)
    if source.text_field not in value:
        detail = f"fields here: {', '.join(list(value)[:10])}"
        return Bad(line.number, f"no field {source.text_field!r}", detail)
    text = value[source.text_field]
    if not isinstance(text, str):
        return Bad(line.number, f"{source.text_field!r} is not a string", type(text).__name__)
    meta = {name: _plain(value[name]) for name in source.meta_fields if name in value}
    return Record(text, line.number, line.offset, meta)


def _plain(value: object) -> str:
    # ASCII escapes for what is not a string: nothing in meta can fail to be encoded
    return value if isinstance(value, str) else json.dumps(value)
