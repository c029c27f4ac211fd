"""How a fit goes, on standard error; and Ctrl-C, which ends it with what it has learned so far."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from boostmetric.cli.command import say
from boostmetric.estimators import Progress

EVERY = 10.0
"""Seconds from one line to the next where standard error is no terminal."""

STOPPING = "Stopping and keeping what was learned. Press Ctrl-C again to end at once."


class Follower:
    """Shows what `boostmetric.estimators.listening` tells it: a live bar, or a line now and then.

    Until the first iteration is done there is nothing to keep, and Ctrl-C is a KeyboardInterrupt.
    After that, the first Ctrl-C makes it ask for the end of the fit; `interrupted` says so. The
    second one is a KeyboardInterrupt.

    Parameters
    ----------
    quiet : whether to show nothing
    """

    def __init__(self, quiet: bool = False) -> None:
        self.interrupted = False
        self._has_learned = False
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._details = Text("Searching for neighbors …")
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed} of {task.total}"),
            TimeElapsedColumn(),
            TextColumn("·"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task("pass 1", total=None, visible=False)
        self._shown = time.monotonic()
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        if not self._quiet and self._console.is_terminal:
            self._live = Live(
                Group(self._bar, self._details), console=self._console, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def __call__(self, progress: Progress) -> bool:
        """Show how far the fit is; whether it is to end."""
        self._has_learned = True
        if self._live is not None:
            self._bar.update(
                self._task,
                description=f"pass {progress.number} of {progress.n_passes}",
                completed=(progress.number - 1) * progress.max_iter + progress.n_directions,
                total=progress.n_passes * progress.max_iter,
                visible=True,
            )
            self._details.plain = details(progress)
        elif not self._quiet and time.monotonic() - self._shown >= EVERY:
            self._shown = time.monotonic()
            say(
                f"pass {progress.number} of {progress.n_passes}, direction "
                f"{progress.n_directions} of {progress.max_iter}: {details(progress)}"
            )
        return self.interrupted

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._has_learned:
            raise KeyboardInterrupt
        self.interrupted = True
        if self._live is not None:
            self._live.console.print(STOPPING)
        elif not self._quiet:
            # Not `say`: the signal may have come while a line was being written.
            sys.stderr.flush()
            os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())


def details(progress: Progress) -> str:
    """What holds after the last iteration.

    >>> details(Progress(1, 1, 5, 500, 12.34567, 0.0123, 3, 4500, 0.5))
    'objective 12.3457, λ_max 0.0123, 3 of 4,500 comparisons violated'
    """
    return (
        f"objective {progress.objective:.6g}, λ_max {progress.lambda_max:.3g}, "
        f"{progress.n_violated:,} of {progress.n_comparisons:,} comparisons violated"
    )
