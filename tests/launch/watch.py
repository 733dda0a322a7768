"""What the tests see of other processes: their files, and whether they are gone."""

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for `condition`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.01)


def until_text(path: Path, text: str) -> None:
    """Waits until the file at `path` says `text`."""
    until(lambda: path.exists() and text in path.read_text())


def is_gone(pid: int) -> bool:
    """No such process, or only its exit status is left (Linux)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"
