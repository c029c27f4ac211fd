"""Output to the terminal, progress of a fit, and checks of output files."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from boostmetric.estimators import Progress


class CommandError(Exception):
    """A command failed; the message is for the user."""


class UsageError(typer.BadParameter):
    """Incompatible options; the message is a complete sentence."""

    def format_message(self) -> str:
        """Return the message without a prefix."""
        return self.message


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
    """A table without lines; the columns numbered in `left` are aligned to the left."""
    from rich.table import Table
    from rich.text import Text

    titles = list(columns)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(titles))
    for number, title in enumerate(titles):
        made.add_column(Text(title), justify="left" if number in left else "right", no_wrap=True)
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
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed} of at most {task.total} directions"),
            TextColumn("{task.fields[details]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("Searching neighbors", total=None, details="")

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

    def __call__(self, progress: Progress) -> bool:
        """Show the state of the fit, and return whether to end it."""
        self._has_learned = True
        number = f"Pass {progress.number} of {progress.n_passes}"
        details = f"{progress.n_violated:,} of {progress.n_comparisons:,} comparisons violated"
        self._bar.update(
            self._task,
            description=number,
            completed=progress.n_directions,
            total=progress.max_iter,
            details=details,
        )
        now = time.monotonic()
        if self._bar.disable and not self._quiet and now - self._shown >= self._seconds_per_line:
            self._shown = now
            say(
                f"{number}: {progress.n_directions} of at most {progress.max_iter} directions, "
                f"{details}"
            )
        return self.interrupted

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._has_learned:
            raise KeyboardInterrupt
        self.interrupted = True
        if not self._quiet:
            # Not print: the signal may have arrived while a line was being written.
            os.write(2, f"{self.STOPPING}\n".encode())
