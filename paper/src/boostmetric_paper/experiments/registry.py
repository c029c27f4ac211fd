"""All experiments, by the name that the command line takes."""

from __future__ import annotations

from collections.abc import Sequence

from boostmetric_paper.experiments.caltech import CALTECH
from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.experiment import Experiment, ExperimentError
from boostmetric_paper.experiments.lfw import LFW
from boostmetric_paper.experiments.msrc import MSRC
from boostmetric_paper.experiments.tables import TABLES

SMALL = "-small"
"""The end of the name of a small configuration."""

EXPERIMENTS: dict[str, Experiment] = {**TABLES, **CALTECH, **MSRC, **LFW}
"""The paper's, and small configurations of some."""

PAPER = tuple(name for name in EXPERIMENTS if not name.endswith(SMALL))
"""The paper's."""


def small(experiment: str) -> str:
    """The name of the small configuration; an ExperimentError if there is none."""
    if experiment + SMALL not in EXPERIMENTS:
        having = [name for name in PAPER if name + SMALL in EXPERIMENTS]
        raise ExperimentError(
            f"{experiment} has no small configuration: {', '.join(having)} have. Choose a part "
            "by --datasets, --methods and --seeds instead."
        )
    return experiment + SMALL


def wanted(
    experiment: str,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Cell]:
    """The cells of a choice; an ExperimentError if there is no such dataset or method.

    Parameters
    ----------
    experiment : one of `EXPERIMENTS`
    datasets, methods : None for all
    seeds : None for those that the experiment has

    Examples
    --------
    >>> [str(cell) for cell in wanted("table1", ["iris"], ["lda"], [0, 1])]
    ['table1: lda on iris, seed 0', 'table1: lda on iris, seed 1']
    """
    chosen = EXPERIMENTS[experiment]
    for kind, given, known in (
        ("dataset", datasets, chosen.datasets),
        ("method", methods, chosen.methods),
    ):
        for name in given or ():
            if name not in known:
                raise ExperimentError(
                    f"{experiment} has no {kind} {name!r}: its {kind}s are {', '.join(known)}"
                )
    return list(chosen.cells(datasets or chosen.datasets, methods or chosen.methods, seeds))
