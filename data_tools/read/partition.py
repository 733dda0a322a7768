"""The read stage: raw files to tables of documents, and every bad place to a table of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path, PurePath

from data_tools.document import DataError, Document, table_writer
from data_tools.read import READERS
from data_tools.read.bad_table import BadTable
from data_tools.read.files import names, printable
from data_tools.read.format import WHOLE, Span
from data_tools.read.record import Bad, Record
from data_tools.source import SourceConfig, partition_name
from data_tools.stage import Input, Partition, Report, Stage

LEAST_SPAN = 1 << 16
"""A file of fewer bytes is not cut: starting a task takes longer than reading it."""


@dataclass(frozen=True)
class ReadConfig:
    """What a partition reads of its files."""

    source: SourceConfig
    """Without `root` and `paths`: they find the files, and change nothing in their documents."""
    span: Span
    """Of its one file, or all of each."""


def plan(source: SourceConfig, workdir: Path, partition_bytes: int) -> list[Partition[ReadConfig]]:
    """The files of a source in the order of their names: small ones together, big ones cut.

    Raises `DataError` for files that `names` refuses, or that cannot be read.
    """
    root = workdir / source.root
    config = replace(source, root="", paths=())
    format = READERS[source.format]
    parts: list[tuple[Span, list[Input]]] = []
    room = 0
    for name in names(source, root, workdir):
        with _readable(root / name):
            size = (root / name).stat().st_size
            file = _input(root, name, format.beside(root / name, root))
            whole = size <= max(partition_bytes, LEAST_SPAN)
            spans = [WHOLE] if whole else format.cut(root / name, max(partition_bytes, LEAST_SPAN))
        if len(spans) > 1:
            parts += [(span, [file]) for span in spans]
            room = 0
            continue
        if room <= 0:
            parts.append((WHOLE, []))
            room = partition_bytes
        parts[-1][1].append(file)
        room -= size
    return [
        Partition(partition_name(source.name, i), ReadConfig(config, span), {"files": tuple(files)})
        for i, (span, files) in enumerate(parts)
    ]


def _input(root: Path, name: str, beside: Path | None) -> Input:
    identity = ""
    for path in (root / name, *([] if beside is None else [beside])):
        stat = path.stat()
        identity += f"{stat.st_size}:{stat.st_mtime_ns} "
    return Input(root / name, printable(name), identity.strip())


def read_partition(partition: Partition[ReadConfig], out: Path) -> Report:
    """Writes documents.parquet, and bad.parquet when something is bad."""
    source, span = partition.config.source, partition.config.span
    documents = text_bytes = 0
    with (
        table_writer(out / "documents.parquet") as write,
        BadTable(out / "bad.parquet") as bad,
    ):
        for file in partition.inputs["files"]:
            for found in _records(file, source, span):
                if isinstance(found, Bad):
                    bad.add(file.name, found)
                    continue
                write(
                    Document.make(
                        found.text, source.name, source.type, file.name, found.offset, found.meta
                    )
                )
                documents += 1
                text_bytes += len(found.text.encode())
    # a file is counted where it begins, however it was cut
    files = 0 if span.start else len(partition.inputs["files"])
    counts = {"files": files, "documents": documents, "text_bytes": text_bytes}
    return counts | bad.report()


def _records(file: Input, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    root = file.path.parents[len(PurePath(file.name).parts) - 1]
    with _readable(file.path):
        for found in READERS[source.format].read(file.path, replace(source, root=str(root)), span):
            yield _checked(found) if isinstance(found, Record) else found


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Not committed as bad: permissions and disks are mended, and then the file is read."""
    try:
        yield
    except OSError as e:
        raise DataError(
            f"{path}: cannot be read ({e.strerror}); mend that, or leave the file out"
        ) from e


def _checked(record: Record) -> Record | Bad:
    if not record.text.strip():
        return Bad(record.place, "empty text")
    for name, value in {"text": record.text, **record.meta}.items():
        try:
            value.encode()
        except UnicodeEncodeError as e:
            detail = f"U+{ord(value[e.start]):04X} at character {e.start} of {name}"
            return Bad(record.place, "lone surrogate", detail)
    return record


# what they take for the text of a page
VERSIONS = ", ".join(f"{name} {version(name)}" for name in ("resiliparse", "fastwarc"))
READ = Stage("read", f"3; {VERSIONS}", read_partition)
