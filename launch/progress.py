"""How far a job has come, by what lies in its work directory: a restart that helps advances it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from jaxlm import storage
from launch import exits

_STATUS_S = 60.0
"""That a store may take to say how far a run has come."""


def of_run(workdir: str) -> int | None:
    """The position of a run, by its `status.json`, -1 if it says nothing; None: not known."""
    try:
        text = _status(workdir)
        return None if text is None else int(json.loads(text)["position"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return -1


def _status(workdir: str) -> str | None:
    if not storage.is_url(workdir):
        return Path(workdir, "status.json").read_text(encoding="utf-8")
    command = (sys.executable, "-m", "jaxlm", "status", "--json", f"--workdir={workdir}")
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_STATUS_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode in (exits.RESTART, exits.ENVIRONMENT) else done.stdout


def of_build(workdir: str) -> int | None:
    """Partitions that a data build has committed."""
    return sum(partitions(workdir).values())


def partitions(workdir: str) -> dict[str, int]:
    """Stage of a data build -> its committed partitions, by their directories' names alone; what
    was changed last comes last."""
    counts = []
    for root in (*Path(workdir).glob("stages/*"), Path(workdir, "shards")):
        with contextlib.suppress(OSError):  # not there, or no longer
            count = sum(path.suffix != ".tmp" for path in root.iterdir())
            counts.append((root.stat().st_mtime, root.name, count))
    return {name: count for _, name, count in sorted(counts) if count}


POSITIONS: dict[str, Callable[[str], int | None]] = {"build": of_build, "run": of_run}
"""What a work directory has -> how far that has come."""
