"""The commands together, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TextIO

import typer

from boostmetric import __version__
from boostmetric.cli import paper
from boostmetric.cli.command import Command, CommandError, is_missing, say
from boostmetric.cli.comparing import compare
from boostmetric.cli.fitting import fit
from boostmetric.cli.judging import evaluate
from boostmetric.cli.looking import inspect, plot
from boostmetric.cli.using import neighbors, transform
from boostmetric.datasets import DatasetError
from boostmetric.demo import DemoError
from boostmetric.experiments.experiment import ExperimentError
from boostmetric.experiments.report import ReportError

UsageError: Any = typer.BadParameter.__bases__[0]
"""What is wrong with the arguments; typer does not hand on the name."""

ERRORS = (
    CommandError,
    DemoError,
    DatasetError,
    ExperimentError,
    ReportError,
    ImportError,
    OSError,
    ValueError,
)
"""What a command raises when it cannot do what it is asked to; the text is for the user."""

EXAMPLES: dict[Callable[..., None], str] = {
    fit: "boostmetric fit wine.csv --label class -o wine.bm",
    evaluate: "boostmetric evaluate wine.bm wine.csv --label class --test new.csv",
    transform: "boostmetric transform wine.bm wine.csv -o transformed.csv",
    neighbors: "boostmetric neighbors wine.bm wine.csv --row 0 17 -k 3",
    inspect: "boostmetric inspect wine.bm",
    plot: "boostmetric plot wine.bm wine.csv --label class --kind projection -o wine.png",
    compare: "boostmetric compare wine.csv --label class --cv 5",
    paper.demo: "boostmetric demo --output pictures --splits 3",
    paper.reproduce: "boostmetric reproduce table1 --datasets wine iris --jobs 2",
    paper.report: "boostmetric report --output report.html",
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
app.add_typer(paper.data, name="data")


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
    """Learn a Mahalanobis metric by boosting, from your own tables or the paper's.

    Results go to standard output, progress and messages to standard error. The exit code is 0, 2
    after one line about what is wrong, or 130 after Ctrl-C. Options of several values take all
    words up to the next option.
    """
    if context.invoked_subcommand is None:
        raise CommandError("a command is needed (see boostmetric --help)")


def run(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; errors become one line on standard error."""
    command = typer.main.get_command(app)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            # Some packages have warnings that are both; these are for those who write programs.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.showwarning = _show_warning
            code = command.main(argv, prog_name="boostmetric", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else "boostmetric"
        return _refused(f"{_said(error)} (see {path} --help)")
    except BrokenPipeError:
        # Whoever reads the output has enough; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ERRORS as error:
        return _refused(str(error))
    except MemoryError:
        return _refused("there is not enough memory: give fewer points or features.")
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _refused(text: str) -> int:
    say(f"boostmetric: error: {' '.join(text.split())}")
    return 2


def _said(error: Any) -> str:
    """What is wrong with the arguments, in words that are the same for all versions of typer."""
    if type(error).__name__ == "MissingParameter":
        return is_missing(error.param)
    text: str = error.format_message().strip().rstrip(".")
    return text[:1].lower() + text[1:]


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, UserWarning):
        say(f"boostmetric: warning: {' '.join(str(message).split())}")
