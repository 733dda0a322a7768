"""Runs a command and sees how long it takes and how much memory its processes hold together."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")
INTERVAL = 0.05
"""Seconds between two looks."""


class Failed(Exception):
    """A measured command that did not end well."""


class Watched(NamedTuple):
    """What was seen of one run."""

    seconds: float
    peak_bytes: int
    """Largest sum of the resident memory of its processes; what they share counts for each."""
    output: str
    """Standard output."""


def watch(command: Sequence[str], log: Path) -> Watched:
    """Runs a command in a session of its own, errors to `log`; raises `Failed`."""
    start, peak = time.perf_counter(), 0
    output = log.with_suffix(".out")
    with log.open("w") as errors, output.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            time.sleep(INTERVAL)
    seconds = time.perf_counter() - start
    if process.returncode:
        tail = log.read_text(encoding="utf-8")[-2000:]
        raise Failed(f"{' '.join(command)}: exit code {process.returncode}\n{tail}")
    return Watched(seconds, peak, output.read_text(encoding="utf-8"))


def _resident(session: int) -> int:
    """Bytes of all processes of a session."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # the name of the command, in brackets, may hold spaces
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it ended
                continue
            if int(stat[3]) == session:
                total += int(stat[21]) * PAGE
    return total
