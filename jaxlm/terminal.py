"""What a run says on its terminal: a run does not end because nobody watches it."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


def show(line: str, stream: TextIO | None = None) -> None:
    """A line on this stream, by default standard output; dropped where it cannot be written."""
    with dropping():
        # In one piece: without a buffer, another thread's line would come before its end.
        print(line + "\n", end="", file=stream, flush=True)


@contextlib.contextmanager
def dropping() -> Iterator[None]:
    """Inside, what cannot be written is dropped: a terminal is gone, or a file's disk is full."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
        yield


def is_watched() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def let_go() -> None:
    """For the end of a process: drops what cannot be written, which would change its exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
