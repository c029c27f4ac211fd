"""How a command line runs: its exit code, and what becomes of errors and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, TextIO

import typer

from boostmetric.cli.command import CommandError, is_missing, say
from boostmetric.engines import EngineError

UsageError: Any = typer.BadParameter.__bases__[0]
"""What is wrong with the arguments; typer does not hand on the name."""

ERRORS: tuple[type[Exception], ...] = (
    CommandError,
    EngineError,
    ImportError,
    OSError,
    ValueError,
)
"""What a command raises when it cannot do what it is asked to; the text is for the user."""


def run_app(
    app: typer.Typer,
    name: str,
    argv: list[str] | None = None,
    errors: tuple[type[Exception], ...] = (),
) -> int:
    """Run a command and return its exit code; errors become one line on standard error.

    Parameters
    ----------
    app : the commands
    name : of the program, with which lines on standard error begin
    argv : the arguments; None takes those that the program was called with
    errors : exceptions whose text is for the user, beside `ERRORS`
    """

    def refused(text: str) -> int:
        say(f"{name}: error: {' '.join(text.split())}")
        return 2

    def show_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, UserWarning):
            say(f"{name}: warning: {' '.join(str(message).split())}")

    command = typer.main.get_command(app)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            # Some packages have warnings that are both; these are for those who write programs.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.showwarning = show_warning
            code = command.main(argv, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        return refused(f"{_said(error)} (see {path} --help)")
    except BrokenPipeError:
        # Whoever reads the output has enough; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (*ERRORS, *errors) as error:
        return refused(str(error))
    except (FloatingPointError, OverflowError, ZeroDivisionError) as error:
        return refused(
            f"the computation failed ({error}). Are values in the data extremely large or small? "
            "Rescale the features, or use --init scale."
        )
    except ArithmeticError as error:
        return refused(str(error))
    except MemoryError:
        return refused("there is not enough memory: give fewer points or features.")
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _said(error: Any) -> str:
    """What is wrong with the arguments, in words that are the same for all versions of typer."""
    if type(error).__name__ == "MissingParameter":
        return is_missing(error.param)
    text: str = error.format_message().strip().rstrip(".")
    return text[:1].lower() + text[1:]
