"""The state of a work directory: whether what a report tells of is still what lies there."""

import hashlib
import json
from pathlib import Path

from data_tools.stage import committed

ROOTS = ("stages/*", "dropped", "shards")
"""Where a build keeps partitions."""


def state(workdir: Path) -> str:
    """32 hex digits over all that is committed and whole: each partition and its fingerprint."""
    found = []
    for root in ROOTS:
        for directory in sorted(workdir.glob(f"{root}/*")):
            commit = committed(directory)
            if commit is not None:
                found.append((directory.relative_to(workdir).as_posix(), commit.fingerprint))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]
