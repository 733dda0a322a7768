"""Checksums of a checkpoint's files: written before it is committed, compared before it is read.

Orbax keeps none of array data: a flipped bit would be restored as a wrong number.
"""

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
from etils import epath

from jaxlm import cluster, storage
from jaxlm.errors import UserError

CHECKSUMS = "checksums.json"
REWRITTEN = "_CHECKPOINT_METADATA"
"""Orbax updates this file after the checksums are written."""


class CheckpointError(UserError):
    """A checkpoint that exists but cannot be used: names the file and the way out."""


class Damaged(CheckpointError):
    """One whose files are not those that were written."""


def write(directory: epath.Path) -> None:
    """Writes the checksums of all files in a directory."""
    names = [name for name in _files(directory) if name.rpartition("/")[2] != REWRITTEN]
    sums = dict(zip(names, _checksums(directory, names), strict=True))
    (directory / CHECKSUMS).write_text(json.dumps(sums))


def verify(directory: epath.Path) -> None:
    """Compares each file with its checksum, each process its share; all agree on the outcome.

    Raises `Damaged` with the names of damaged and missing files.
    """
    try:
        expected = json.loads((directory / CHECKSUMS).read_text())
        if not isinstance(expected, dict) or not expected:
            raise ValueError("names no file")
    except (OSError, ValueError) as e:
        problems = [f"{CHECKSUMS}: {e}"]
    else:
        mine = sorted(expected)[jax.process_index() :: jax.process_count()]
        found = dict(zip(mine, _checksums(directory, mine), strict=True))
        problems = [
            f"{name}: {'is missing' if found[name] is None else 'does not match its checksum'}"
            for name in mine
            if found[name] != expected[name]
        ]
    everyone = cluster.gather(f"verify {directory.name}", problems, cluster.restore_s())
    problems = sorted({p for problems in everyone for p in problems})
    if problems:
        raise Damaged(
            f"{directory}: the checkpoint is damaged and will not be used:\n  "
            + "\n  ".join(problems[:10])
            + "\nRestore it from a copy, or go on from the one before it: jaxlm train --fallback"
        )


def _files(directory: epath.Path) -> list[str]:
    if storage.is_url(str(directory)):
        return sorted(storage.sizes(str(directory), [""]))
    files = (p for p in Path(directory).rglob("*") if p.is_file())
    return sorted(str(p.relative_to(directory)) for p in files)


def _checksums(directory: epath.Path, names: list[str]) -> list[list[int] | None]:
    """[size, crc32] of each file, None where it is missing."""
    # Threads help: crc32 and reads let go of the interpreter's lock.
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda name: _checksum(directory / name), names))


def _checksum(path: epath.Path) -> list[int] | None:
    size, crc = 0, 0
    try:
        with path.open("rb") as f:
            while block := f.read(1 << 22):
                size, crc = size + len(block), zlib.crc32(block, crc)
    except FileNotFoundError:
        return None
    return [size, crc]
