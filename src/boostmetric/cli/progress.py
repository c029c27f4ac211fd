"""Progress of a fit on standard error, and Ctrl-C, which ends it and keeps what was learned."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from boostmetric.estimators import Progress

SECONDS_PER_LINE = 10.0
"""Interval of the lines if standard error is not a terminal."""

STOPPING = "Stopping; what was learned so far is kept. Press Ctrl-C again to quit at once."


class FitProgress:
    """A listener (`boostmetric.estimators.listening`) that shows a bar, or a line now and then.

    Until the first step is done there is nothing to keep, and Ctrl-C is a KeyboardInterrupt. After
    that, the first Ctrl-C ends the fit and sets `interrupted`, the second is a KeyboardInterrupt.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.interrupted = False
        self._has_learned = False
        self._quiet = quiet
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
        if self._bar.disable and not self._quiet and now - self._shown >= SECONDS_PER_LINE:
            self._shown = now
            limit = f"{progress.n_directions} of at most {progress.max_iter} directions"
            print(f"{number}: {limit}, {details}", file=sys.stderr, flush=True)
        return self.interrupted

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._has_learned:
            raise KeyboardInterrupt
        self.interrupted = True
        if not self._quiet:
            # Not print: the signal may have arrived while a line was being written.
            os.write(2, f"{STOPPING}\n".encode())
