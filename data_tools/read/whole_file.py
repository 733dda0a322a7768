"""A file that is one record: its bytes, if they may be held in memory."""

from pathlib import Path

from data_tools.read.record import WHOLE_FILE, Bad, too_long


def read_whole(path: Path, limit: int) -> bytes | Bad:
    """All bytes of a file of at least one and at most `limit` bytes."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        return too_long(WHOLE_FILE, path.stat().st_size, limit)
    return data or Bad(WHOLE_FILE, "empty file")
