"""The command `boostmetric-paper`: reproduce, report, data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from boostmetric.cli.command import Command, CommandError, count, natural, one_of, say
from boostmetric.cli.running import run_app
from boostmetric_paper.datasets import NAMES, DatasetError, describe, fetch
from boostmetric_paper.experiments.cells import Results, compute, lacks
from boostmetric_paper.experiments.experiment import ExperimentError
from boostmetric_paper.experiments.outputs import write_outputs
from boostmetric_paper.experiments.registry import EXPERIMENTS, PAPER, small, wanted
from boostmetric_paper.experiments.report import ReportError, write_report
from boostmetric_paper.experiments.tables import too_slow

ResultsFolder = Annotated[
    Path,
    typer.Option("--results", metavar="FOLDER", help="Where the files of cells are."),
]
Experiment = Annotated[
    str,
    typer.Argument(
        parser=one_of(PAPER),
        metavar="EXPERIMENT",
        help="; ".join(f"{name}: {EXPERIMENTS[name].title}" for name in PAPER),
        show_default=False,
    ),
]
Datasets = Annotated[
    list[str] | None, typer.Option("--datasets", metavar="NAME ...", help="Some of them only.")
]
Methods = Annotated[
    list[str] | None, typer.Option("--methods", metavar="NAME ...", help="Some of them only.")
]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        "--seeds",
        parser=natural,
        metavar="N ...",
        help="Of the splits; by default the paper's number of them.",
    ),
]
Cells = Annotated[int, typer.Option("--jobs", parser=count, metavar="N", help="Cells at a time.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", parser=count, metavar="SECONDS", help="For one cell, instead of its own."
    ),
]
Small = Annotated[
    bool,
    typer.Option(
        "--small", help="A few words, triplets and splits: whether all works, in seconds."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Compute failed cells again.")]


@contextmanager
def cells_shown(total: int) -> Iterator[Callable[[str], None]]:
    """What shows the line of each cell that is done, of so many; on a terminal with a bar below."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield say
        return
    bar = Progress(
        TextColumn("cells"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        expand=True,
        transient=True,
    )
    task = bar.add_task("cells", total=total)

    def show(line: str) -> None:
        console.print(line, highlight=False, markup=False)
        bar.advance(task)

    with bar:
        yield show


def reproduce(
    experiment: Experiment,
    datasets: Datasets = None,
    methods: Methods = None,
    seeds: Seeds = None,
    jobs: Cells = 1,
    limit: Limit = None,
    retry: Retry = False,
    small_one: Small = False,
    results: ResultsFolder = Path("results"),
) -> None:
    """Compute the paper's tables and figures anew.

    Each cell (dataset, method, seed) is a process of its own and becomes a line of
    RESULTS/EXPERIMENT.jsonl; what is there is not computed again, so an interrupted run goes on
    where it stopped. RESULTS/EXPERIMENT.csv has the same as a table; experiments on images draw
    RESULTS/EXPERIMENT.png too.
    """
    if small_one:
        experiment = small(experiment)
    table = EXPERIMENTS[experiment]
    cells = wanted(experiment, datasets or None, methods or None, seeds or None)
    stored = Results(results / f"{experiment}.jsonl")
    known = stored.read()
    missing = [cell for cell in cells if lacks(known, cell, retry)]
    table.ready(missing)
    with cells_shown(len(missing)) as show:
        n = compute(
            cells,
            stored,
            limit_of=lambda cell: limit or table.limit_of(cell),
            jobs=jobs,
            retry=retry,
            hopeless=too_slow,
            show=show,
        )
    written = ", ".join(map(str, [stored.path, *write_outputs(stored, experiment)]))
    print(
        f"{table.title}: {n} cells computed, {len(cells) - n} were there already. Written: "
        f"{written}. To look at them beside the paper: boostmetric-paper report"
    )


def report(
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
    results: ResultsFolder = Path("results"),
) -> None:
    """Write a page that sets what was reproduced beside the paper.

    One HTML page, with all it needs, from the files of `reproduce`.
    """
    write_report(results, output)
    print(f"Page: {output}")


def data_list() -> None:
    """A line about each dataset: its size, and whether it is there."""
    print(*map(describe, NAMES), sep="\n")


def data_fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"{', '.join(NAMES)}.", show_default=False)
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="Where to; by default $BOOSTMETRIC_DATA."),
    ] = None,
) -> None:
    """Get a dataset from OpenML, and print where it is."""
    print(fetch(name, folder))


app = typer.Typer(
    epilog="Example: boostmetric-paper reproduce table1 --datasets wine iris --jobs 2",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _boostmetric_paper(context: typer.Context) -> None:
    """Compute the paper's experiments anew, and set them beside the paper.

    Results go to standard output, progress and messages to standard error. The exit code is 0, 2
    after one line about what is wrong, or 130 after Ctrl-C. Options of several values take all
    words up to the next option.
    """
    if context.invoked_subcommand is None:
        raise CommandError("a command is needed (see boostmetric-paper --help)")


app.command(
    cls=Command,
    epilog="Example: boostmetric-paper reproduce table1 --datasets wine iris --jobs 2",
)(reproduce)
app.command(cls=Command, epilog="Example: boostmetric-paper report --output report.html")(report)

data = typer.Typer(
    help="List the paper's datasets, or get one.",
    epilog="Example: boostmetric-paper data fetch letter",
    subcommand_metavar="ACTION",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@data.callback()
def _data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise CommandError(
            "data needs an action, list or fetch (see boostmetric-paper data --help)"
        )


data.command("list", cls=Command, epilog="Example: boostmetric-paper data list")(data_list)
data.command(
    "fetch", cls=Command, epilog="Example: boostmetric-paper data fetch letter --folder data"
)(data_fetch)
app.add_typer(data, name="data")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    It is 0, or 2 after one line about what is wrong, or 130 after Ctrl-C.

    Parameters
    ----------
    argv : the arguments; None takes those that the program was called with

    Examples
    --------
    >>> main(["data"])
    2
    """
    return run_app(app, "boostmetric-paper", argv, (DatasetError, ExperimentError, ReportError))
