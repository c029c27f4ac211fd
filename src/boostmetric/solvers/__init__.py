"""Solvers of the problem: what a step is, the loop over steps, and certificates of optimality.

They see an `Objective` and never points, labels, engines or files.
"""

from boostmetric.problem import REGULARIZERS, Hinge, Loss, Operator
from boostmetric.solvers import corrective, hinge
from boostmetric.solvers.corrective import TotallyCorrective
from boostmetric.solvers.eigen import EIGEN_SOLVERS, FOLLOWED, leading_eigenpairs
from boostmetric.solvers.hinge import SoftMarginSolver, check_highs
from boostmetric.solvers.loop import (
    FIRST_GAP,
    AnySolver,
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
from boostmetric.solvers.stagewise import Stagewise

__all__ = [
    "EIGEN_SOLVERS",
    "FIRST_GAP",
    "SOLVERS",
    "AnySolver",
    "Boosting",
    "Iteration",
    "Memory",
    "Outcome",
    "SnapshotError",
    "Status",
    "check_combination",
    "default_batch_size",
    "default_solver",
    "history_from",
    "history_table",
    "leading_eigenpairs",
    "make_solver",
    "with_prefix",
]

SOLVERS = ("stagewise", "totally_corrective")
"""The solvers by name."""

MAX_BATCH_SIZE = 24
"""Directions per step of the stage-wise solver on large problems; at most half of the features."""

MIN_FEATURES_FOR_BATCHES = 16
"""With fewer features, a batch would be most of the directions that there are."""

MIN_TERMS_FOR_BATCHES = 10_000
"""With fewer comparisons, the paper's way, one direction at a time, is fast enough."""

MAX_MEASURES = 1 << 25
"""Measures of the directions of a batch that are held in memory (256 MB in float64)."""


def default_batch_size(loss: Loss, solver: str, n_features: int, n_terms: int) -> int:
    """Directions per step, unless another number is given."""
    if isinstance(loss, Hinge):
        return hinge.BATCH_SIZE
    if solver == "totally_corrective":
        few = n_features <= corrective.FEW_FEATURES
        return corrective.BATCH_SIZE if few else 2 * corrective.BATCH_SIZE
    if n_features < MIN_FEATURES_FOR_BATCHES or n_terms < MIN_TERMS_FOR_BATCHES:
        return 1
    if n_features > Operator.DENSE_UP_TO:
        return FOLLOWED
    return min(MAX_BATCH_SIZE, n_features // 2, max(FOLLOWED, MAX_MEASURES // n_terms))


def make_solver(loss: Loss, solver: str, batch_size: int, eigen_solver: str) -> AnySolver:
    """The solver of this name for a loss: that of the hinge is a linear program."""
    if isinstance(loss, Hinge):
        return SoftMarginSolver(batch_size, eigen_solver)
    kind = TotallyCorrective if solver == "totally_corrective" else Stagewise
    return kind(batch_size, eigen_solver)


def default_solver(loss: Loss) -> str:
    """The first that a loss works with."""
    return loss.solvers[0] if loss.solvers else SOLVERS[0]


def check_combination(loss: Loss, solver: str, regularizer: str) -> None:
    """Raise a ValueError if a loss cannot be combined with a solver or a regularizer."""
    for what, given, known, works in (
        ("solver", solver, SOLVERS, loss.solvers),
        ("regularizer", regularizer, tuple(REGULARIZERS), loss.regularizers),
    ):
        if given not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(
                f"The '{what}' parameter must be one of {names}. Got {given!r} instead."
            )
        if given not in works:
            names = " or ".join(map(repr, works)) or "none"
            raise ValueError(
                f"{what}={given!r} does not work with the loss {loss!r}. Use {what}={names} with "
                f"this loss, or another loss, such as 'smoothed_hinge', with this {what}."
            )
    if isinstance(loss, Hinge):
        check_highs()
