"""Becomes the command that it is given, which then cannot outlive its launcher.

`python guard.py PARENT_PID COMMAND...`. On Linux the kernel kills the process when its parent dies,
even by SIGKILL. Elsewhere there is no such order: a process whose launcher was killed ends when it
next writes to its closed output.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def command(words: Sequence[str]) -> tuple[str, ...]:
    """A command that ends with the thread which starts it."""
    # -I -S: it starts in 10 ms and sees no user site; what it becomes does.
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *words)


if __name__ == "__main__":
    parent, *words = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the order was given
        sys.exit(f"launch: the launcher (process {parent}) is gone")
    os.execvp(words[0], words)
