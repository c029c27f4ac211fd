"""`python -m boostmetric`, the same as the command `boostmetric`."""

import sys

from boostmetric.cli import main

if __name__ == "__main__":
    sys.exit(main())
