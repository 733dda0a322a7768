"""`python -m jaxlm`, and the script `jaxlm`: the command in a process of its own."""

import sys

from jaxlm import allocator


def start() -> int:
    """Runs the command line of this process, perhaps in its next life; returns the exit code."""
    allocator.settle(sys.argv[1:])
    from jaxlm.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
