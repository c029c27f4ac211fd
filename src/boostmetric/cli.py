"""The command `boostmetric`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from boostmetric import __version__
from boostmetric.datasets import NAMES, DatasetError, describe, fetch
from boostmetric.demo import DemoError, run
from boostmetric.experiments.cells import Results, compute, lacks
from boostmetric.experiments.report import ReportError, write_report
from boostmetric.experiments.tables import (
    EXPERIMENTS,
    ExperimentError,
    check_ready,
    too_slow,
    wanted,
)

ERRORS = (DemoError, DatasetError, ExperimentError, ReportError, OSError)
"""What a command raises when it cannot do what it is asked to; the text is for the user."""


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
        arguments.run(arguments)
    except (_UsageError, *ERRORS) as error:
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
    for add in (_add_demo, _add_reproduce, _add_report, _add_data):
        add(commands)
    return parser


def _add_demo(commands: Any) -> None:
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
    demo.set_defaults(run=lambda given: run(given.output, given.splits))


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="compute the paper's tables and figures anew",
        description=(
            "Compute an experiment of the paper cell by cell. Each cell (dataset, method, seed) is "
            "a process of its own and becomes a line of RESULTS/EXPERIMENT.jsonl; what is there is "
            "not computed again, so an interrupted run goes on where it stopped."
        ),
        epilog="Example: boostmetric reproduce table1 --datasets wine iris --jobs 2",
    )
    reproduce.add_argument(
        "experiment",
        choices=EXPERIMENTS,
        help="; ".join(f"{name}: {each.title}" for name, each in EXPERIMENTS.items()),
    )
    reproduce.add_argument("--datasets", nargs="+", metavar="NAME", help="some of them only")
    reproduce.add_argument("--methods", nargs="+", metavar="NAME", help="some of them only")
    reproduce.add_argument(
        "--seeds", nargs="+", type=_seed, metavar="N", help="of the splits (default: the paper's)"
    )
    reproduce.add_argument(
        "--jobs", type=_count, default=1, metavar="N", help="cells at a time (default: 1)"
    )
    reproduce.add_argument(
        "--limit", type=_count, metavar="SECONDS", help="for one cell, instead of its own limit"
    )
    reproduce.add_argument("--retry", action="store_true", help="compute failed cells again")
    _add_results(reproduce)
    reproduce.set_defaults(run=_reproduce)


def _reproduce(given: argparse.Namespace) -> None:
    experiment = EXPERIMENTS[given.experiment]
    cells = wanted(given.experiment, given.datasets, given.methods, given.seeds)
    results = Results(given.results / f"{given.experiment}.jsonl")
    known = results.read()
    check_ready(cell for cell in cells if lacks(known, cell, given.retry))
    n = compute(
        cells,
        results,
        limit_of=lambda cell: given.limit or experiment.limit_of(cell),
        jobs=given.jobs,
        retry=given.retry,
        hopeless=too_slow,
        show=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(
        f"{experiment.title}: {n} cells computed, {len(cells) - n} were there already, in "
        f"{results.path}. To look at them: boostmetric report"
    )


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="write a page that sets what was reproduced beside the paper",
        description="Write one HTML page, with all it needs, from the files of `reproduce`.",
        epilog="Example: boostmetric report --output report.html",
    )
    report.add_argument(
        "--output", type=Path, default=Path("report.html"), metavar="FILE", help="(report.html)"
    )
    _add_results(report)
    report.set_defaults(run=_report)


def _report(given: argparse.Namespace) -> None:
    write_report(given.results, given.output)
    print(f"Page: {given.output}")


def _add_data(commands: Any) -> None:
    data = commands.add_parser(
        "data",
        help="list the paper's datasets, or get one",
        description="The datasets of the experiments: what there is, and where it comes from.",
        epilog="Example: boostmetric data fetch letter",
    )
    actions = data.add_subparsers(dest="action", metavar="action", required=True)
    listing = actions.add_parser("list", help="a line about each dataset")
    listing.set_defaults(run=lambda given: print(*map(describe, NAMES), sep="\n"))
    getting = actions.add_parser(
        "fetch",
        help="get a dataset from OpenML",
        epilog="Example: boostmetric data fetch letter --folder data",
    )
    getting.add_argument("name", metavar="NAME", help=", ".join(NAMES))
    getting.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="where to (default: $BOOSTMETRIC_DATA)"
    )
    getting.set_defaults(run=lambda given: print(fetch(given.name, given.folder)))


def _add_results(parser: Any) -> None:
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="where the files of cells are (default: ./results)",
    )


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"an integer of at least 0 is needed; got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"an integer of at least 1 is needed; got {text!r}")
    return int(text)
