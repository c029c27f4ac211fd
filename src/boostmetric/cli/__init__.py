"""The command `boostmetric`.

The modules import typer only. NumPy, pandas, scikit-learn and rich are imported when a command
runs, so that help and usage errors are quick.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    It is 0, 1 after a failure, 2 after a usage error and 130 after Ctrl-C.

    Parameters
    ----------
    argv : the arguments. Default: those of the program

    Examples
    --------
    >>> main(["--version"])
    boostmetric ...
    0
    """
    try:
        from boostmetric.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(
            "Error: the command line requires typer. Install it with: "
            "pip install 'boostmetric[cli]'",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return run(argv)
