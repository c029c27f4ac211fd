"""The application: all commands, and the options of `boostmetric` itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from boostmetric._version import __version__
from boostmetric.cli.compare import compare
from boostmetric.cli.demo import demo
from boostmetric.cli.evaluate import evaluate
from boostmetric.cli.fit import fit
from boostmetric.cli.inspect import inspect
from boostmetric.cli.neighbors import neighbors
from boostmetric.cli.plot import plot
from boostmetric.cli.transform import transform

app = typer.Typer(
    epilog="Example: boostmetric fit wine.csv --label class --init scale -o wine.bm",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
_EXAMPLES: dict[Callable[..., None], str] = {
    fit: "fit wine.csv --label class --init scale -o wine.bm",
    evaluate: "evaluate wine.bm wine.csv --label class --cv 5",
    transform: "transform wine.bm new.csv -o transformed.csv",
    neighbors: "neighbors wine.bm wine.csv --row 0 --row 17 -k 3",
    inspect: "inspect wine.bm",
    plot: "plot wine.bm wine.csv --label class -o wine.png",
    compare: "compare wine.csv --label class --cv 5",
    demo: "demo",
}
for _command, _example in _EXAMPLES.items():
    app.command(epilog=f"Example: boostmetric {_example}")(_command)


def _print_version(value: bool) -> None:
    if value:
        print(f"boostmetric {__version__}")
        raise typer.Exit


@app.callback()
def _boostmetric(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Learn a distance from a table, and use it.

    Results are written to standard output, progress and messages to standard error. Exit codes:
    0 success, 1 failure, 2 usage error, 130 Ctrl-C.
    """
