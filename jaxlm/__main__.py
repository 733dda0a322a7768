"""`python -m jaxlm` is the `jaxlm` command."""

import sys

from jaxlm.cli import main

sys.exit(main())
