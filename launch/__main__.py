"""`python -m launch LAUNCHER ...`."""

import signal
import sys

from launch import LAUNCHERS, exits
from launch.process import say

INTERRUPTED = 128 + signal.SIGINT
"""As shells say it."""


def main() -> int:
    """Hands the arguments to the launcher that the first one names."""
    names = ", ".join(LAUNCHERS)
    name, *rest = sys.argv[1:] or [""]
    if name in LAUNCHERS:
        try:
            return LAUNCHERS[name](rest)
        except KeyboardInterrupt:  # while nothing runs yet, or of one who only looks
            return INTERRUPTED
    if name in ("-h", "--help"):
        print(f"usage: python -m launch LAUNCHER --help\nlaunchers: {names}")
        return exits.DONE
    say(f"{name!r} is not a launcher; use one of: {names}")
    return exits.USAGE


sys.exit(main())
