"""``python -m mu2_optax.sweep``: the same as ``mu2-sweep``."""

import sys

from mu2_optax.sweep._command.cli import main

if __name__ == "__main__":
    sys.exit(main())
