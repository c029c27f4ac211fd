"""The command `boostmetric-paper`: reproduce, report, data."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from boostmetric_paper.datasets import NAMES, DatasetError, describe, fetch
from boostmetric_paper.experiments.cells import Results, compute, is_missing
from boostmetric_paper.experiments.experiment import ExperimentError, without_interpreter
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.experiments.tables import too_slow


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    It is 0, 2 after an error message of one line, or 130 after Ctrl-C. Results are printed on
    standard output, progress and errors on standard error.

    Parameters
    ----------
    argv : the arguments; None uses those of the program

    Examples
    --------
    >>> main(["data", "fetch", "iris"])
    iris is built in: nothing to download.
    0
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.run(arguments)
    except SystemExit as stop:  # --help, or wrong arguments
        return int(stop.code or 0)
    except (DatasetError, ExperimentError, ImportError, OSError) as error:
        print(f"boostmetric-paper: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "boostmetric-paper",
        description="Reproduce the experiments of the BoostMetric paper.",
        epilog="Example: boostmetric-paper reproduce table1 --datasets wine iris --jobs 2",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    reproduce = commands.add_parser(
        "reproduce",
        help="run an experiment",
        description="Run an experiment. Each cell (dataset, method, seed) is computed in its own "
        "process and stored as a line of RESULTS/NAME.jsonl. Cells with a line are not computed "
        "again, so an interrupted run can be resumed.",
        epilog="Example: boostmetric-paper reproduce circles --seeds 0",
    )
    names = [name for name in EXPERIMENTS if not name.endswith("-small")]
    listing = "; ".join(f"{name}: {EXPERIMENTS[name].title}" for name in names)
    reproduce.add_argument("name", choices=names, metavar="NAME", help=listing)
    reproduce.add_argument("--datasets", nargs="+", metavar="NAME", help="default: all")
    reproduce.add_argument("--methods", nargs="+", metavar="NAME", help="default: all")
    reproduce.add_argument(
        "--seeds", nargs="+", type=_natural, metavar="N", help="of the splits; default: the paper's"
    )
    reproduce.add_argument(
        "--jobs", type=_positive, default=1, metavar="N", help="number of cells in parallel"
    )
    reproduce.add_argument(
        "--limit", type=_positive, metavar="SECONDS", help="CPU time per cell; default: depends"
    )
    reproduce.add_argument("--retry", action="store_true", help="compute failed cells again")
    reproduce.add_argument(
        "--small",
        action="store_true",
        help="for experiments on images: a test run with few words, triplets and splits",
    )
    reproduce.set_defaults(run=_reproduce)

    report = commands.add_parser(
        "report",
        help="write tables and figures",
        description="Write report.md, with our results next to the paper's, and its figures.",
        epilog="Example: boostmetric-paper report --results paper/results --output report",
    )
    report.add_argument(
        "--output", type=Path, metavar="FOLDER", help="default: the folder of the results"
    )
    report.set_defaults(run=_report)
    for command in (reproduce, report):
        command.add_argument(
            "--results", type=Path, default=Path("results"), metavar="FOLDER", help="of the results"
        )

    data = commands.add_parser("data", help="list or download the datasets")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="sizes, sources, and whether the files exist")
    listed.set_defaults(run=lambda arguments: print(*map(describe, NAMES), sep="\n"))
    download = actions.add_parser(
        "fetch",
        help="download a dataset from OpenML",
        epilog="Example: boostmetric-paper data fetch letter --folder data",
    )
    download.add_argument("name", metavar="NAME", help=", ".join(NAMES))
    download.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="default: $BOOSTMETRIC_DATA"
    )
    download.set_defaults(run=lambda arguments: print(fetch(arguments.name, arguments.folder)))
    return parser


def _reproduce(arguments: argparse.Namespace) -> None:
    name = arguments.name
    if arguments.small:
        name += "-small"
        if name not in EXPERIMENTS:
            raise ExperimentError(
                f"{arguments.name} has no small version. Select a part with --datasets, --methods "
                "and --seeds instead."
            )
    experiment = EXPERIMENTS[name]
    cells = experiment.cells(arguments.datasets, arguments.methods, arguments.seeds)
    results = Results(arguments.results / f"{name}.jsonl")
    known = results.read()
    missing = [cell for cell in cells if is_missing(known, cell, arguments.retry)]
    skipped = [] if arguments.methods else without_interpreter(missing)
    if skipped:
        print(f"Skipping {', '.join(skipped)}: run `make peers` first.", file=sys.stderr)
        missing = [cell for cell in missing if cell.method not in skipped]
        cells = [cell for cell in cells if cell.method not in skipped or cell in known]
    experiment.check_ready(missing)
    n_computed = compute(
        cells,
        results,
        limit_of=lambda cell: arguments.limit or experiment.limit_of(cell),
        jobs=arguments.jobs,
        retry=arguments.retry,
        skip_reason=too_slow,
        show=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(
        f"{results.path}: {n_computed} cells computed, {len(cells) - n_computed} existed already. "
        f"Compare with the paper: boostmetric-paper report --results {arguments.results}"
    )


def _report(arguments: argparse.Namespace) -> None:
    from boostmetric_paper.experiments.report import write_report  # imports Matplotlib

    print(write_report(arguments.results, arguments.output or arguments.results))


def _natural(text: str, minimum: int = 0) -> int:
    if not text.isdecimal() or int(text) < minimum:
        raise argparse.ArgumentTypeError(f"must be an int >= {minimum}, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    return _natural(text, minimum=1)
