"""The files of a source: what its patterns match, without loops of links and names that clash."""

import glob
import os
import re
from contextlib import suppress
from pathlib import Path

from data_tools.document import DataError
from data_tools.source import SourceConfig

OWN = re.compile(
    r"(stages|shards|dropped)/.*|lock|"
    r"(manifest\.json|report\.json|report\.html|tokenizer\.model|clusters\.parquet)(\.tmp)?",
    re.DOTALL,
)
"""Files below the work directory that a build writes."""

type _Identity = tuple[int, int]
"""Of a directory, by whatever name: device and inode."""


def names(source: SourceConfig, root: Path, workdir: Path) -> list[str]:
    """Names below `root` of the files of a source, in order.

    Raises `DataError` when a pattern matches no file or one that a build wrote, when links lead it
    round in a circle, or when two names print the same.
    """
    found: set[str] = set()
    for pattern in source.paths:
        _refuse_loops(source, root, pattern)
        # as in a shell: hidden files only when spelled out, which Path.glob does not know
        matches = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207
        files = [name for name in matches if (root / name).is_file()]
        if not files:
            raise DataError(
                f"source {source.name}: no file matches {pattern!r} below {root}; "
                "correct root or paths, or take the source out of the recipe"
            )
        own = [n for n in files if OWN.fullmatch(os.path.relpath(root / n, workdir))]
        if own:
            raise DataError(
                f"source {source.name}: {pattern!r} below {root} matches {own[0]}, which the "
                "build itself wrote; keep raw files in a directory of their own"
            )
        found.update(files)
    _refuse_clashes(source, root, found)
    return sorted(found)


def printable(name: str) -> str:
    """A file's name as documents and reports give it: bytes that are not UTF-8 are spelled out."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _refuse_clashes(source: SourceConfig, root: Path, names: set[str]) -> None:
    """Documents are known by the printed name: two files would share their ids."""
    seen: dict[str, str] = {}
    for name in sorted(names):
        other = seen.setdefault(printable(name), name)
        if other != name:
            raise DataError(
                f"source {source.name}: the files {os.fsencode(other)!r} and "
                f"{os.fsencode(name)!r} below {root} have the same name in print, and documents "
                "are known by it; rename one"
            )


def _refuse_loops(source: SourceConfig, root: Path, pattern: str) -> None:
    """`**` follows links: round in a circle, it would read files many times, or never end."""
    parts = pattern.split("/")
    seen: set[_Identity] = set()
    for depth in (i for i, part in enumerate(parts) if part == "**"):
        starts = glob.glob("/".join(parts[:depth]), root_dir=root, recursive=True)  # noqa: PTH207
        for start in starts if depth else [""]:
            if link := _looping_link(root / start, seen):
                raise DataError(
                    f"source {source.name}: {link} is a link to a directory that it lies in, and "
                    f"{pattern!r} would go round in it; remove the link, or name the directories "
                    "beside it in paths"
                )


def _looping_link(start: Path, seen: set[_Identity]) -> Path | None:
    """A link below `start` that leads to a directory above itself.

    Each directory is looked at once, and is then in `seen`.
    """
    # depth first: what was seen, and is not above, has no circle in it
    pending: list[tuple[Path, Path, frozenset[_Identity]]] = [(start, start, frozenset())]
    while pending:
        directory, link, above = pending.pop()
        with suppress(OSError):  # glob passes over what it cannot list
            here = _identity(directory)
            if here in above:
                return link
            if here in seen:
                continue
            seen.add(here)
            for child in _directories(directory):
                if child.is_symlink():
                    holders = frozenset(map(_identity, directory.resolve().parents))
                    pending.append((child, child, above | holders | {here}))
                else:
                    pending.append((child, link, above | {here}))
    return None


def _directories(directory: Path) -> list[Path]:
    """Those that `**` enters: links to one too, and no hidden ones."""
    with os.scandir(directory) as entries:
        return [
            directory / entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and (entry.is_dir(follow_symlinks=False) or os.path.isdir(entry.path))  # noqa: PTH112
        ]


def _identity(directory: Path) -> _Identity:
    stat = directory.stat()
    return stat.st_dev, stat.st_ino
