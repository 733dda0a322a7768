"""`python -m bench.faults`."""

import sys

from bench.faults.command import main

if __name__ == "__main__":
    sys.exit(main())
