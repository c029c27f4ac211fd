"""Commands that check their output files, output to the terminal, and progress of a fit."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from boostmetric.estimators import Progress


Function = TypeVar("Function", bound=Callable[..., None])


class CommandError(Exception):
    """A command failed; the message is for the user."""


class UsageError(typer.BadParameter):
    """Incompatible options; the message is a complete sentence."""

    def format_message(self) -> str:
        """Return the message without a prefix."""
        return self.message


def reason(error: Exception) -> str:
    """Return the message of an error on one line, or its name if it has none."""
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return "not enough memory" if isinstance(error, MemoryError) else type(error).__name__


def say(text: str) -> None:
    """Print a message on standard error."""
    print(text, file=sys.stderr, flush=True)


def show(*parts: str | Table) -> None:
    """Print results on standard output: wrapped in a terminal, whole lines otherwise."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
    for part in parts:
        console.print(part, markup=False)


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
    """Build a table without lines; the columns numbered in `left` are aligned to the left."""
    from rich.table import Table
    from rich.text import Text

    titles = list(columns)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(titles))
    for number, title in enumerate(titles):
        made.add_column(Text(title), justify="left" if number in left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def command(app: typer.Typer, example: str) -> Callable[[Function], Function]:
    """Register a function as a command that checks its output files before it runs.

    Files that must exist are inputs, all others are outputs. An output must not be another file of
    the command, and must not exist unless --force, or for a checkpoint --resume, is used.
    """

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def checked(**values: Any) -> None:
            hints = get_type_hints(function, include_extras=True)
            files = [
                (name, hints[name].__metadata__[0], path)
                for name, value in values.items()
                for path in (value if isinstance(value, list) else [value])
                if isinstance(path, Path)
            ]
            for output, info, path in files:
                if info.exists or not info.file_okay:
                    continue
                for other, other_info, other_path in files:
                    if other != output and _is_same_file(path, other_path):
                        is_option = isinstance(other_info, typer.models.OptionInfo)
                        title = f"--{other.replace('_', '-')}" if is_option else other.upper()
                        raise UsageError(
                            f"--{output} {path} is the same file as {title} {other_path}. Choose "
                            "another output file."
                        )
                option, purpose = "force", "replace it"
                if output == "checkpoint":
                    option, purpose = "resume", "continue from it"
                check_output(path, values[option], f"Use --{option} to {purpose}.")
            function(**values)

        app.command(epilog=f"Example: boostmetric {example}")(checked)
        return function

    return register


def check_output(path: Path, replace: bool, advice: str) -> None:
    """Reject a path that cannot be written, and an existing file unless it may be replaced."""
    from boostmetric._files import resolve_output

    try:
        resolve_output(path)
    except OSError as error:
        raise UsageError(str(error)) from None
    if path.exists() and not replace:
        raise UsageError(f"{path} exists. {advice}")


def _is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file, which need not exist."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


class FitProgress:
    """A listener (`boostmetric.estimators.listening`) that shows a bar, or a line now and then.

    Before the first step there is nothing to keep, and Ctrl-C is a KeyboardInterrupt. After it,
    the first Ctrl-C ends the fit and sets `interrupted`; the second is a KeyboardInterrupt.
    """

    STOPPING = "Stopping; what was learned so far is kept. Press Ctrl-C again to quit at once."

    def __init__(self, quiet: bool = False, seconds_per_line: float = 10.0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self.interrupted = False
        self._has_learned = False
        self._quiet = quiet
        self._seconds_per_line = seconds_per_line
        self._shown = time.monotonic()
        console = Console(stderr=True)
        self._bar = Bar(
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("Preparing", total=None)

    def __enter__(self) -> Self:
        self._previous: Any = None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        if not self._bar.disable:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._bar.disable:  # older versions of rich print an empty line otherwise
            self._bar.stop()
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def begin_pass(self, number: int, n_passes: int) -> None:
        """Show that a pass begins."""
        self._bar.update(self._task, completed=0)
        self._show(f"Pass {number} of {n_passes}: searching neighbors")

    def __call__(self, progress: Progress) -> bool:
        """Show the state of the fit, and return whether to end it."""
        self._has_learned = True
        self._bar.update(self._task, completed=progress.n_directions, total=progress.max_iter)
        self._show(
            f"Pass {progress.number} of {progress.n_passes}: {progress.n_directions} of at most "
            f"{progress.max_iter} directions, {progress.n_violated:,} of "
            f"{progress.n_comparisons:,} comparisons violated"
        )
        return self.interrupted

    def _show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        now = time.monotonic()
        if self._bar.disable and not self._quiet and now - self._shown >= self._seconds_per_line:
            self._shown = now
            say(text)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._has_learned:
            raise KeyboardInterrupt
        self.interrupted = True
        if not self._quiet:
            # Not print: the signal may have arrived while a line was being written.
            os.write(2, f"{self.STOPPING}\n".encode())
