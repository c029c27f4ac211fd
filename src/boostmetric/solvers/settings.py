"""How a problem is solved: the parameters that `BoostMetric`, `boost` and `learn_psd` share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from boostmetric._validation import check_parameter, is_count, is_real
from boostmetric.problem import LOSSES, REGULARIZERS, Hinge, Loss, Operator, Regularizer, as_loss
from boostmetric.solvers import corrective, hinge
from boostmetric.solvers.corrective import TotallyCorrective
from boostmetric.solvers.eigen import EIGEN_SOLVERS, FOLLOWED
from boostmetric.solvers.hinge import SoftMarginSolver, check_highs
from boostmetric.solvers.loop import AnySolver
from boostmetric.solvers.stagewise import Stagewise

DEFAULT_ALPHA = 1e-7
"""The relative alpha, unless another is given."""

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


@dataclass(frozen=True)
class SolverSettings:
    """Loss, regularizer and solver, checked and resolved.

    Attributes
    ----------
    loss, solver : F, and one of `SOLVERS`
    regularizer : R; if its alpha is None, `alpha` is relative to the problem
    alpha : relative alpha
    max_iter : maximum number of directions
    directions_per_step : None for a number that depends on the problem
    tol : relative duality gap that ends the fit; None for the default of the solver
    eigen_solver : one of `EIGEN_SOLVERS`
    """

    loss: Loss
    solver: str
    regularizer: Regularizer
    alpha: float = DEFAULT_ALPHA
    max_iter: int = 500
    directions_per_step: int | None = None
    tol: float | None = None
    eigen_solver: str = "auto"

    @classmethod
    def of(
        cls,
        loss: str | Loss = "logistic",
        solver: str = "auto",
        regularizer: str | Regularizer = "trace",
        alpha: float = DEFAULT_ALPHA,
        max_iter: int = 500,
        directions_per_step: int | str = "auto",
        tol: float | None = None,
        eigen_solver: str = "auto",
    ) -> SolverSettings:
        """Check the parameters of a user; raises a ValueError for the first that is invalid."""
        check_parameter(
            "loss",
            loss,
            isinstance(loss, Loss) or (isinstance(loss, str) and loss in LOSSES),
            f"one of {_set_of(LOSSES)} or a Loss",
        )
        check_parameter(
            "solver", solver, solver in ("auto", *SOLVERS), f"one of {_set_of(('auto', *SOLVERS))}"
        )
        check_parameter(
            "regularizer",
            regularizer,
            isinstance(regularizer, Regularizer)
            or (isinstance(regularizer, str) and regularizer in REGULARIZERS),
            f"one of {_set_of(REGULARIZERS)} or a Regularizer, such as Trace(0.5)",
        )
        check_parameter("alpha", alpha, is_real(alpha), "a float in the range [0.0, inf)")
        check_parameter("max_iter", max_iter, is_count(max_iter), "an int in the range [1, inf)")
        check_parameter(
            "directions_per_step",
            directions_per_step,
            directions_per_step == "auto" or is_count(directions_per_step),
            "'auto' or an int in the range [1, inf)",
        )
        check_parameter(
            "tol", tol, tol is None or is_real(tol), "None or a float in the range [0.0, inf)"
        )
        check_parameter(
            "eigen_solver",
            eigen_solver,
            eigen_solver in EIGEN_SOLVERS,
            f"one of {_set_of(EIGEN_SOLVERS)}",
        )
        F = as_loss(loss)
        R = REGULARIZERS[regularizer]() if isinstance(regularizer, str) else regularizer
        if solver == "auto":
            solver = F.solvers[0] if F.solvers else SOLVERS[0]
        name = next((name for name, kind in REGULARIZERS.items() if isinstance(R, kind)), "")
        for what, given, works in (
            ("solver", solver, F.solvers),
            ("regularizer", name, F.regularizers),
        ):
            if given and given not in works:
                names = " or ".join(map(repr, works)) or "none"
                raise ValueError(
                    f"{what}={given!r} does not work with the loss {F!r}. Use {what}={names} with "
                    f"this loss, or another loss, such as 'smoothed_hinge', with this {what}."
                )
        if isinstance(F, Hinge):
            check_highs()
            if alpha != DEFAULT_ALPHA or R.alpha is not None:
                raise ValueError(
                    f"alpha has no effect with {F!r}, which fixes the trace at 1. Use "
                    "loss=Hinge(nu=...) instead."
                )
        elif R.alpha is not None and alpha != DEFAULT_ALPHA:
            raise ValueError(
                f"alpha={alpha!r} and regularizer={R!r} both set the strength. Pass one of them: "
                "alpha is relative to the problem, that of the regularizer is absolute."
            )
        given_number = None if isinstance(directions_per_step, str) else int(directions_per_step)
        return cls(F, solver, R, float(alpha), int(max_iter), given_number, tol, eigen_solver)

    def batch_size(self, n_features: int, n_terms: int) -> int:
        """Directions per step for a problem of this size."""
        if self.directions_per_step is not None:
            return self.directions_per_step
        if isinstance(self.loss, Hinge):
            return hinge.BATCH_SIZE
        if self.solver == "totally_corrective":
            few = n_features <= corrective.FEW_FEATURES
            return corrective.BATCH_SIZE if few else 2 * corrective.BATCH_SIZE
        if n_features < MIN_FEATURES_FOR_BATCHES or n_terms < MIN_TERMS_FOR_BATCHES:
            return 1
        if n_features > Operator.DENSE_UP_TO:
            return FOLLOWED
        return min(MAX_BATCH_SIZE, n_features // 2, max(FOLLOWED, MAX_MEASURES // n_terms))

    def make_solver(self, n_features: int, n_terms: int) -> AnySolver:
        """The solver for a problem of this size; that of the hinge is a linear program."""
        batch_size = self.batch_size(n_features, n_terms)
        if isinstance(self.loss, Hinge):
            return SoftMarginSolver(batch_size, self.eigen_solver)
        kind = TotallyCorrective if self.solver == "totally_corrective" else Stagewise
        return kind(batch_size, self.eigen_solver)

    def regularizer_for(self, alpha_max: float, dual_sum: float, unit: float) -> Regularizer:
        """R with an absolute alpha.

        Parameters
        ----------
        alpha_max, dual_sum : λ_max of the scatter at M = 0, and the sum of the duals there
        unit : the matrices of the problem are those of the user divided by this number
        """
        R = self.regularizer
        if R.alpha is None:
            return replace(R, alpha=self.alpha * R.unit(alpha_max, dual_sum))
        return replace(R, alpha=R.in_units(R.alpha, 1 / unit))


def _set_of(names: Any) -> str:
    return f"{{{', '.join(map(repr, names))}}}"
