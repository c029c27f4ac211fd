"""The command `boostmetric`."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    It is 0, or 2 after one line about what is wrong, or 130 after Ctrl-C.

    Parameters
    ----------
    argv : the arguments; None takes those that the program was called with

    Examples
    --------
    >>> main(["demo", "--splits", "0"])
    2
    """
    try:
        from boostmetric.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(
            f"boostmetric: error: the command line needs {error.name}, which is missing: "
            "pip install 'boostmetric[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run(argv)
