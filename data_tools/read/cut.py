"""Cutting a file: spans of about one size that begin where a pattern says that records do."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from data_tools.read.compressed import CODECS
from data_tools.read.format import WHOLE, Span

BLOCK = 1 << 16

type NextStart = Callable[[BinaryIO, int], int | None]
"""(File, position) -> where the first record at or after it begins; None: there is none."""


def cut_at(path: Path, size: int, next_start: NextStart) -> list[Span]:
    """Spans of `size` bytes or a little more, as records allow; the first begins at 0."""
    total = path.stat().st_size
    starts = [0]
    with path.open("rb") as file:
        while (target := starts[-1] + size) < total:
            start = next_start(file, target)
            if start is None or start >= total:
                break
            starts.append(start)
    return [Span(a, b) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def search(file: BinaryIO, pattern: re.Pattern[bytes], longest: int, start: int) -> Iterator[int]:
    """Positions of a pattern at or after `start`; a match has at most `longest` bytes."""
    file.seek(start)
    held = b""
    while block := file.read(BLOCK):
        at = start - len(held)
        window = held + block
        kept = max(0, len(window) - longest + 1)
        for match in pattern.finditer(window):
            # what may go on in the next block is found again there
            if match.start() >= kept:
                break
            position = file.tell()
            yield at + match.start()
            file.seek(position)
        start += len(block)
        held = window[kept:]
    for match in pattern.finditer(held):
        yield start - len(held) + match.start()


def cut_lines(path: Path, size: int) -> list[Span]:
    """Cuts at newlines; a compressed file is one span."""
    return [WHOLE] if path.suffix in CODECS else cut_at(path, size, _next_line)


def _next_line(file: BinaryIO, position: int) -> int | None:
    newline = next(search(file, re.compile(rb"\n"), 1, position - 1), None)
    return None if newline is None else newline + 1
