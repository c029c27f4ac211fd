"""Solvers: the loop over steps, three ways to propose a step, and certificates of optimality.

Solvers query an `Objective` and never see points, labels, engines or files.
"""

from boostmetric.solvers.eigen import EIGEN_SOLVERS, leading_eigenpairs
from boostmetric.solvers.loop import (
    Boosting,
    Callback,
    Iteration,
    Outcome,
    SnapshotError,
    Status,
    history_from,
    history_table,
    with_prefix,
)
from boostmetric.solvers.settings import DEFAULT_ALPHA, SOLVERS, SolverSettings

__all__ = [
    "DEFAULT_ALPHA",
    "EIGEN_SOLVERS",
    "SOLVERS",
    "Boosting",
    "Callback",
    "Iteration",
    "Outcome",
    "SnapshotError",
    "SolverSettings",
    "Status",
    "history_from",
    "history_table",
    "leading_eigenpairs",
    "with_prefix",
]
