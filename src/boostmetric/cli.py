"""The command `boostmetric`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from boostmetric import __version__
from boostmetric.demo import DemoError, run


class _UsageError(Exception):
    """What is wrong with the arguments."""


class _Parser(argparse.ArgumentParser):
    """A parser that leaves it to `main` to report an error, in one line."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message} (see {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 after one line about what is wrong.

    Parameters
    ----------
    argv : the arguments; None takes those that the program was called with

    Examples
    --------
    >>> main(["demo", "--splits", "0"])
    2
    """
    try:
        arguments = _parser().parse_args(argv)
        run(arguments.output, arguments.splits)
    except (_UsageError, DemoError, OSError) as error:
        print(f"boostmetric: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="boostmetric",
        description="Learn a Mahalanobis metric by boosting.",
        epilog="Example: boostmetric demo --output pictures --splits 3",
    )
    parser.add_argument("--version", action="version", version=f"boostmetric {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="compare methods on small datasets, and draw the paper's toy example",
        description=(
            "Print the nearest-neighbour error of several metrics on three datasets, beside the "
            "paper's figures, and draw its toy example. Takes half a minute."
        ),
        epilog="Example: boostmetric demo --output pictures --splits 3",
    )
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("demo"),
        metavar="FOLDER",
        help="where the picture goes; created if need be (default: ./demo)",
    )
    demo.add_argument(
        "--splits",
        type=_count,
        default=10,
        metavar="N",
        help="number of random splits to average over, at least 1 (default: 10)",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"an integer of at least 1 is needed; got {text!r}")
    return int(text)
