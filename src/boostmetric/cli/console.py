"""Output to the terminal, checks of output files, and the translation of errors to exit codes."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


class CommandError(Exception):
    """A command failed; the message is for the user."""


class UsageError(typer.BadParameter):
    """Options that do not fit together; the message is a whole sentence."""

    def format_message(self) -> str:
        """Return the message without a prefix."""
        return self.message


def run(app: typer.Typer, argv: list[str] | None = None) -> int:
    """Run an application and return its exit code; failures become one line on standard error."""

    def show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, UserWarning):
            say(f"Warning: {' '.join(str(message).split())}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            # Some packages have warnings that are both; these are for developers.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.showwarning = cast(Any, show_warning)
            typer.main.get_command(app).main(argv, prog_name="boostmetric")
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
            "the features, or use --init scale."
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


def say(text: str) -> None:
    """Print a message on standard error."""
    print(text, file=sys.stderr, flush=True)


def show(*parts: str | Table) -> None:
    """Print results on standard output: wrapped in a terminal, whole lines otherwise."""
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
    for part in parts:
        console.print(Text(part) if isinstance(part, str) else part)


def show_json(value: Any) -> None:
    """Print a result as JSON; NaN and infinities, which JSON does not have, become null."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [finite(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    print(json.dumps(finite(value), indent=2, ensure_ascii=False))


def table(
    columns: Iterable[str], rows: Iterable[Sequence[object]], left: Sequence[int] = (0,)
) -> Table:
    """A table without lines; the columns numbered in `left` are aligned to the left."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        made.add_column(Text(column), justify="left" if number in left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def check_output(path: Path, force: bool, inputs: Iterable[Path | None]) -> None:
    """Reject an output path in a missing folder, an existing file unless forced, and any input."""
    if not path.parent.is_dir():
        raise UsageError(f"The folder {path.parent} does not exist.")
    used = [each for each in inputs if each is not None]
    if path.absolute() in map(Path.absolute, used) or (
        path.exists() and any(each.exists() and path.samefile(each) for each in used)
    ):
        raise UsageError(f"{path} is an input of this command. Choose another output file.")
    if path.exists() and not force:
        raise UsageError(f"{path} exists. Use --force to replace it.")
