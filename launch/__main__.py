"""`python -m launch LAUNCHER ...`."""

import sys

from launch import LAUNCHERS, exits


def main() -> int:
    """Hands the arguments to the launcher that the first one names."""
    names = ", ".join(LAUNCHERS)
    name, *rest = sys.argv[1:] or [""]
    if name in LAUNCHERS:
        return LAUNCHERS[name](rest)
    print(f"usage: python -m launch LAUNCHER --help\nlaunchers: {names}", file=sys.stderr)
    if name in ("-h", "--help"):
        return exits.DONE
    print(f"launch: {name!r} is not a launcher; use one of: {names}", file=sys.stderr)
    return exits.USAGE


sys.exit(main())
