"""Checksums of a checkpoint's files: written before it is committed, compared before it is read.

Orbax keeps none of array data: a flipped bit would be restored as a wrong number. The sums are of
what was written, read back, each process its own share; so are the comparisons.
"""

import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
from etils import epath

from jaxlm import cluster, records, storage
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.storage import StoreError

CHECKSUMS = "checksums.json"
REWRITTEN = "_CHECKPOINT_METADATA"
"""Orbax updates this file after the checksums are written."""


type Sums = dict[str, list[int] | None]
"""[size, crc32] of each file, None where it is missing."""


class CheckpointError(UserError):
    """A checkpoint that exists but cannot be used: names the file and the way out."""


class Damaged(CheckpointError):
    """One whose files are not those that were written."""


def sums(directory: epath.Path, below: str) -> Sums:
    """Of the files in one of its directories; by name from the first on."""
    return _sums(directory, [f"{below}/{name}" for name in _files(directory / below)])


def write(directory: epath.Path, known: Sums) -> None:
    """Writes the checksums of all files in a directory; those that are `known` are not read."""
    names = [name for name in _files(directory) if name.rpartition("/")[2] != REWRITTEN]
    rest = [name for name in names if name not in known]
    (directory / CHECKSUMS).write_text(json.dumps(known | _sums(directory, rest)))


def verify(directory: epath.Path) -> None:
    """Compares each file with its checksum, each process its share; all agree on the outcome.

    Raises `Damaged` with the names of damaged and missing files; `EnvironmentProblem` or
    `StoreError` if they cannot be read, which says nothing of what they hold.
    """
    problems, failed = [], None
    try:
        problems = _problems(directory)
    except UserError as e:
        failed = e.exit_code, str(e)
    except OSError as e:
        failed = EnvironmentProblem.exit_code, f"{directory}: cannot be read ({e})"
    everyone = cluster.gather(f"verify {directory.name}", [problems, failed], cluster.restore_s())
    for _, failed in everyone:
        if failed is not None:
            code, why = failed
            raise StoreError(why) if code == StoreError.exit_code else EnvironmentProblem(why)
    problems = sorted({problem for problems, _ in everyone for problem in problems})
    if problems:
        raise Damaged(
            f"{directory}: the checkpoint is damaged and will not be used:\n  "
            + "\n  ".join(problems[:10])
            + "\nRestore it from a copy, or use the one before it (to go on with its run: "
            "jaxlm train --fallback)"
        )


def _problems(directory: epath.Path) -> list[str]:
    """What is wrong with this process's share of the files."""
    try:
        expected = records.parsed(_tried(directory / CHECKSUMS, lambda path: path.read_text()))
        if not isinstance(expected, dict) or not expected:
            raise ValueError("names no file")
    except UserError:
        raise  # of a store
    except (FileNotFoundError, ValueError) as e:
        return [f"{CHECKSUMS}: {e}"]
    mine = sorted(expected)[jax.process_index() :: jax.process_count()]
    found = _sums(directory, mine)
    found |= _sums(directory, [n for n in mine if found[n] != expected[n]])  # misread, perhaps
    return [
        f"{name}: {'is missing' if found[name] is None else 'does not match its checksum'}"
        for name in mine
        if found[name] != expected[name]
    ]


def _files(directory: epath.Path) -> list[str]:
    if storage.is_url(str(directory)):
        return sorted(storage.sizes(str(directory), [""]))
    files = (p for p in Path(directory).rglob("*") if p.is_file())
    return sorted(str(p.relative_to(directory)) for p in files)


def _sums(directory: epath.Path, names: list[str]) -> Sums:
    # Threads help: crc32 and reads let go of the interpreter's lock.
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda name: _checksum(directory / name), names)
        return dict(zip(names, found, strict=True))


def _checksum(path: epath.Path) -> list[int] | None:
    def read(path: epath.Path) -> list[int]:
        size, crc = 0, 0
        with path.open("rb") as f:
            while block := f.read(1 << 22):
                size, crc = size + len(block), zlib.crc32(block, crc)
        return [size, crc]

    try:
        return _tried(path, read)
    except FileNotFoundError:
        return None


def _tried[T](path: epath.Path, read: Callable[[epath.Path], T]) -> T:
    """A store that fails is asked again, and is not taken for one that holds damaged files."""
    url = str(path)
    return storage.tried(url, lambda: read(path)) if storage.is_url(url) else read(path)
