"""`python -m boostmetric_paper`, the same as the command `boostmetric-paper`."""

import sys

from boostmetric_paper.cli import main

if __name__ == "__main__":
    sys.exit(main())
