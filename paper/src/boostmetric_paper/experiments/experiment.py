"""What an experiment is: its cells, and how one is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from boostmetric.cli import peer
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.methods import METHODS, peers_python

SEEDS = range(10)

HOUR = 3600.0

T = TypeVar("T")


class ExperimentError(Exception):
    """The experiment cannot start; the text says why and what to do."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    `cells` gives those of a choice of datasets, methods and seeds, where None is the paper's.
    `limit` is the number of seconds that a cell may take, or, for rivals, `rival_limit`. `ready`
    raises an error, before any work, if what the cells need is missing.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cells: Callable[[Sequence[str], Sequence[str], Sequence[int] | None], Iterable[Cell]]
    run: Callable[[Cell], Record]
    limit: float = 3 * HOUR
    rival_limit: float = 600.0
    ready: Callable[[Sequence[Cell]], None] = lambda cells: None

    def limit_of(self, cell: Cell) -> float:
        """Seconds that a cell may take."""
        rival = cell.method in METHODS and METHODS[cell.method].rival
        return self.rival_limit if rival else self.limit


def measured(learn: Callable[[], T]) -> tuple[T, Record]:
    """What a function returns, and what it took: seconds, and MB beyond those before."""
    peer.forget_peak()
    before = peer.peak_memory()
    began, began_processor = time.perf_counter(), time.process_time()
    learned = learn()
    return learned, {
        "fit_seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - began_processor,
        "memory": peer.peak_memory() - before,
    }


def all_seeds(experiment: str, standard: Sequence[int]) -> Callable[..., Iterable[Cell]]:
    """Every combination of datasets, methods and seeds."""

    def cells(
        datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int] | None
    ) -> Iterable[Cell]:
        for dataset in datasets:
            for method in methods:
                for seed in seeds or standard:
                    yield Cell(experiment, dataset, method, seed)

    return cells


def check_peers(methods: Iterable[str]) -> None:
    """Raise an error if there are any, and the environment for other packages is missing."""
    abroad = sorted(set(methods))
    if abroad and not peers_python().exists():
        raise ExperimentError(
            f"{', '.join(abroad)}: these run in an environment of their own, which is not at "
            f"{peers_python()}. Run `make peers`, name its interpreter in BOOSTMETRIC_PEERS, or "
            "leave them out with --methods."
        )
