"""The commands together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from boostmetric import __version__
from boostmetric.cli.command import Command, CommandError, count
from boostmetric.cli.comparing import compare
from boostmetric.cli.demo import DemoError
from boostmetric.cli.demo import run as run_demo
from boostmetric.cli.fitting import fit
from boostmetric.cli.judging import evaluate
from boostmetric.cli.looking import inspect, plot
from boostmetric.cli.running import run_app
from boostmetric.cli.using import neighbors, transform

Pictures = Annotated[
    Path,
    typer.Option("--output", metavar="FOLDER", help="Where the picture goes; created if need be."),
]
Splits = Annotated[
    int,
    typer.Option("--splits", parser=count, metavar="N", help="Random splits to average over."),
]


def demo(output: Pictures = Path("demo"), splits: Splits = 10) -> None:
    """Compare methods on small datasets, and draw an example.

    Prints the nearest-neighbor error of several metrics on three datasets, and draws the paper's
    toy example. Takes half a minute.
    """
    run_demo(output, splits)


EXAMPLES: dict[Callable[..., None], str] = {
    fit: "boostmetric fit wine.csv --label class -o wine.bm",
    evaluate: "boostmetric evaluate wine.bm wine.csv --label class --test new.csv",
    transform: "boostmetric transform wine.bm wine.csv -o transformed.csv",
    neighbors: "boostmetric neighbors wine.bm wine.csv --row 0 17 -k 3",
    inspect: "boostmetric inspect wine.bm",
    plot: "boostmetric plot wine.bm wine.csv --label class --kind projection -o wine.png",
    compare: "boostmetric compare wine.csv --label class --cv 5",
    demo: "boostmetric demo --output pictures --splits 3",
}
"""The commands, each with an example that its help ends with."""

app = typer.Typer(
    epilog="Example: boostmetric fit wine.csv --label class -o wine.bm",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command, _example in EXAMPLES.items():
    app.command(cls=Command, epilog=f"Example: {_example}")(_command)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"boostmetric {__version__}")
        raise typer.Exit


@app.callback()
def _boostmetric(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Learn a Mahalanobis metric by boosting, from your own tables.

    Results go to standard output, progress and messages to standard error. The exit code is 0, 2
    after one line about what is wrong, or 130 after Ctrl-C. Options of several values take all
    words up to the next option.
    """
    if context.invoked_subcommand is None:
        raise CommandError("a command is needed (see boostmetric --help)")


def run(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; errors become one line on standard error."""
    return run_app(app, "boostmetric", argv, (DemoError,))
