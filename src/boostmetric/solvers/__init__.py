"""Solvers of the problem: what a step is, the loop over steps, and certificates of optimality.

They see an `Objective` and never points, labels, engines or files.
"""

from boostmetric.solvers.eigen import EIGEN_SOLVERS, leading_eigenpairs
from boostmetric.solvers.loop import (
    FIRST_GAP,
    Boosting,
    Iteration,
    Outcome,
    SnapshotError,
    Status,
    history_from,
    history_table,
    with_prefix,
)
from boostmetric.solvers.proposal import Memory
from boostmetric.solvers.settings import DEFAULT_ALPHA, SOLVERS, SolverSettings

__all__ = [
    "DEFAULT_ALPHA",
    "EIGEN_SOLVERS",
    "FIRST_GAP",
    "SOLVERS",
    "Boosting",
    "Iteration",
    "Memory",
    "Outcome",
    "SnapshotError",
    "SolverSettings",
    "Status",
    "history_from",
    "history_table",
    "leading_eigenpairs",
    "with_prefix",
]
