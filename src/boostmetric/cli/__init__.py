"""The command `boostmetric`.

`app` lists the commands, each in a module of its own. These modules import typer only; numpy,
pandas and scikit-learn are imported when a command runs, so that help and usage errors are quick.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    It is 0, 1 after a failure, 2 after a usage error and 130 after Ctrl-C.

    Parameters
    ----------
    argv : the arguments; None is those of the program

    Examples
    --------
    >>> main(["--version"])
    boostmetric ...
    0
    """
    try:
        from boostmetric.cli.app import app
        from boostmetric.cli.console import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(
            f"Error: the command line requires {error.name}. Install it with: "
            "pip install 'boostmetric[cli]'",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return run(app, argv)
