"""What an experiment is: its cells, and how each one is computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joblib import Memory

from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.methods import METHODS
from boostmetric_paper.peers import PEERS, peers_python

SEEDS = range(10)
HOUR = 3600.0


class ExperimentError(Exception):
    """The experiment cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Parameters
    ----------
    name : on the command line, and of the file of results
    title : one line for help and reports
    datasets, methods : names of its rows and columns
    run : computes a cell
    seeds_of : the paper's seeds for a dataset and a method; none if this combination is left out
    check : raises an error, before any work, if something that the cells need is missing
    limit : CPU seconds per cell
    slow_limit : CPU seconds per cell of a slow method
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    run: Callable[[Cell], Record]
    seeds_of: Callable[[str, str], Sequence[int]] = lambda dataset, method: SEEDS
    check: Callable[[Sequence[Cell]], None] = lambda cells: None
    limit: float = 3 * HOUR
    slow_limit: float = 600.0

    def cells(
        self,
        datasets: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Cell]:
        """The cells of a selection; None selects all datasets, all methods, the paper's seeds."""
        for kind, given, known in (
            ("dataset", datasets, self.datasets),
            ("method", methods, self.methods),
        ):
            for name in given or ():
                if name not in known:
                    raise ExperimentError(
                        f"{self.name} has no {kind} {name!r}. Choose from {', '.join(known)}."
                    )
        return [
            Cell(self.name, dataset, method, seed)
            for dataset in datasets or self.datasets
            for method in methods or self.methods
            if (standard := self.seeds_of(dataset, method))
            for seed in seeds or standard
        ]

    def limit_of(self, cell: Cell) -> float:
        """CPU seconds that a cell may use."""
        is_slow = cell.method in METHODS and METHODS[cell.method].slow
        return self.slow_limit if is_slow else self.limit

    def check_ready(self, cells: Sequence[Cell]) -> None:
        """Raise an error if the cells need an environment, a package or data that is missing."""
        if external := without_interpreter(cells):
            raise ExperimentError(
                f"{', '.join(external)} need the interpreter {peers_python()}, which does not "
                "exist. Run `make peers`, set BOOSTMETRIC_PEERS to another interpreter with "
                "metric-learn and mlpack, or select other methods with --methods."
            )
        self.check(cells)


def without_interpreter(cells: Sequence[Cell]) -> list[str]:
    """The methods of cells that need an interpreter that does not exist."""
    if peers_python().exists():
        return []
    methods = dict.fromkeys(cell.method for cell in cells)
    return [name for name in methods if name in PEERS and PEERS[name].is_external]


def cache_folder() -> Path:
    """The folder of computed features: $BOOSTMETRIC_CACHE or ~/.cache/boostmetric."""
    return Path(os.environ.get("BOOSTMETRIC_CACHE") or Path.home() / ".cache" / "boostmetric")


def cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its results on disk, identified by its arguments and its source code."""
    return Memory(cache_folder(), verbose=0).cache(function)
