"""The read stage: raw files to tables of documents, and every bad place to a table of its own."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.document import DataError, Document, table_writer
from data_tools.read import READERS
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig, partition_name
from data_tools.stage import Input, Partition, Report, Stage

BAD_SAMPLES = 20
"""Bad places a partition that go into the report; `bad.parquet` has all."""

OWN = re.compile(
    r"(stages|shards)/.*|lock|(manifest\.json|report\.json|report\.html|tokenizer\.model)(\.tmp)?",
    re.DOTALL,
)
"""Files below the work directory that a build writes."""

BAD_SCHEMA = pa.schema(
    [("path", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)


def plan(source: SourceConfig, workdir: Path, partition_bytes: int) -> list[Partition]:
    """The files of a source in the order of their names, cut into partitions.

    Raises `DataError` when a pattern matches no file.
    """
    root = workdir / source.root
    names: set[str] = set()
    for pattern in source.paths:
        # as in a shell: hidden files only when spelled out, which Path.glob does not know
        matches = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207
        found = [name for name in matches if (root / name).is_file()]
        if not found:
            raise DataError(
                f"source {source.name}: no file matches {pattern!r} below {root}; "
                "correct root or paths, or take the source out of the recipe"
            )
        own = [n for n in found if OWN.fullmatch(os.path.relpath(root / n, workdir))]
        if own:
            raise DataError(
                f"source {source.name}: {pattern!r} below {root} matches {own[0]}, which the "
                "build itself wrote; keep raw files in a directory of their own"
            )
        names.update(found)
    # What names the files does not change their documents: adding a pattern reads only new files.
    config = replace(source, root="", paths=())
    groups: list[list[Input]] = []
    room = 0
    for name in sorted(names):
        stat = (root / name).stat()
        if room <= 0:
            groups.append([])
            room = partition_bytes
        room -= stat.st_size
        identity = f"{stat.st_size}:{stat.st_mtime_ns}"
        printable = os.fsencode(name).decode(errors="backslashreplace")
        groups[-1].append(Input(root / name, printable, identity))
    return [
        Partition(partition_name(source.name, i), config, {"files": tuple(files)})
        for i, files in enumerate(groups)
    ]


def read_partition(partition: Partition[SourceConfig], out: Path) -> Report:
    """Writes documents.parquet, and bad.parquet when something is bad."""
    source = partition.config
    bad: list[Mapping[str, object]] = []
    documents = text_bytes = 0
    with table_writer(out / "documents.parquet") as write:
        for file in partition.inputs["files"]:
            for found in _records(file, source):
                if isinstance(found, Bad):
                    bad.append({"path": file.name, "line": found.line} | _reason(found))
                    continue
                write(
                    Document.make(
                        found.text, source.name, source.type, file.name, found.offset, found.meta
                    )
                )
                documents += 1
                text_bytes += len(found.text.encode())
    if bad:
        pq.write_table(pa.Table.from_pylist(bad, BAD_SCHEMA), out / "bad.parquet")
    return {
        "files": len(partition.inputs["files"]),
        "documents": documents,
        "text_bytes": text_bytes,
        "bad": dict(Counter(str(b["reason"]) for b in bad)),
        "bad_samples": bad[:BAD_SAMPLES],
    }


def _reason(bad: Bad) -> dict[str, str]:
    # a name or a message from the file may hold what UTF-8 cannot
    return {k: getattr(bad, k).encode(errors="replace").decode() for k in ("reason", "detail")}


def _records(file: Input, source: SourceConfig) -> Iterator[Record | Bad]:
    try:
        for found in READERS[source.format](file.path, source):
            yield _checked(found) if isinstance(found, Record) else found
    except OSError as e:
        if e.errno is None:  # Arrow's word for a damaged file
            yield Bad(0, "file cannot be read", str(e))
            return
        # Not committed as bad: permissions and disks are mended, and then the file is read.
        raise DataError(
            f"{file.path}: cannot be read ({e.strerror}); mend that, or leave the file out"
        ) from e


def _checked(record: Record) -> Record | Bad:
    if not record.text.strip():
        return Bad(record.line, "empty text")
    for name, value in {"text": record.text, **record.meta}.items():
        try:
            value.encode()
        except UnicodeEncodeError as e:
            detail = f"U+{ord(value[e.start]):04X} at character {e.start} of {name}"
            return Bad(record.line, "lone surrogate", detail)
    return record


READ = Stage("read", "1", read_partition)
