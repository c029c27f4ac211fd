"""The application: all commands, the options of `boostmetric` itself, and exit codes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from boostmetric._version import __version__
from boostmetric.cli.adapt import adapt
from boostmetric.cli.compare import compare, demo
from boostmetric.cli.console import CommandError, command, say
from boostmetric.cli.evaluate import evaluate
from boostmetric.cli.fit import fit
from boostmetric.cli.metric_commands import inspect, neighbors, plot, transform

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
    command(app, _example)(_command)
app.add_typer(adapt, name="adapt")


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


def run(argv: list[str] | None) -> int:
    """Run the application and return its exit code; failures become one line on standard error."""

    def show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, UserWarning):
            say(f"Warning: {' '.join(str(message).split())}")

    # Importing rich takes as long as everything else that the list of commands and usage errors
    # need. Help of a command uses it, for options in groups.
    group = cast(Any, typer.main.get_command(app))
    group.rich_markup_mode = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            # Some packages have warnings that are both; these are for developers.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.showwarning = cast(Any, show_warning)
            group.main(argv, prog_name="boostmetric")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        message = "not enough memory. Use fewer points or features."
    except ModuleNotFoundError as error:
        message = f"{error}. Install it, for example with: pip install 'boostmetric[cli]'"
    except (FloatingPointError, OverflowError, ZeroDivisionError) as error:
        message = (
            f"the computation failed ({error}). Are some values extremely large or small? Rescale "
            "the features."
        )
    except (CommandError, ArithmeticError, ImportError, OSError, ValueError) as error:
        message = str(error)
    except RuntimeError as error:
        from boostmetric.engines import EngineError

        if not isinstance(error, EngineError):
            raise
        message = str(error)
    say(f"Error: {' '.join(message.split())}")
    return 1
