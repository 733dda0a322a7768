"""Becomes the command that it is given, which then cannot outlive its launcher.

`python guard.py PARENT_PID COMMAND...`. On Linux the kernel kills the process when its parent dies,
even by SIGKILL. Elsewhere there is no such order: a process whose launcher was killed ends when it
next writes to its closed output.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the order was given
        sys.exit(f"launch: the launcher (process {parent}) is gone")
    os.execvp(command[0], command)
