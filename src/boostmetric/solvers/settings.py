"""The solver parameters of `BoostMetric`, `boost` and `learn_psd`, checked and resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from boostmetric._validation import check_parameter, is_count, is_real
from boostmetric.problem import (
    LOSSES,
    REGULARIZERS,
    Hinge,
    Loss,
    Operator,
    Regularizer,
    Shrinkage,
    as_loss,
)
from boostmetric.solvers.eigen import EIGEN_SOLVERS, N_FOLLOWED
from boostmetric.solvers.hinge import check_highs

DEFAULT_ALPHA = 1e-7
"""The default relative alpha."""

SOLVERS = ("stagewise", "totally_corrective")
"""The solvers by name."""


@dataclass(frozen=True)
class SolverSettings:
    """Loss, regularizer and solver; `learn_psd` documents the parameters.

    `alpha` is relative, and used if that of the regularizer is None. `directions_per_step` and
    `tol` are None if they depend on the problem and the solver.
    """

    loss: Loss
    solver: str
    regularizer: Regularizer
    alpha: float
    max_iter: int
    directions_per_step: int | None
    tol: float | None
    eigen_solver: str

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
        """Check and resolve parameters; raises a ValueError for the first invalid one."""

        # 1) each parameter
        def one_of(names: Iterable[str]) -> str:
            return f"one of {{{', '.join(map(repr, names))}}}"

        check_parameter(
            "loss",
            loss,
            loss in LOSSES if isinstance(loss, str) else isinstance(loss, Loss),
            f"{one_of(LOSSES)} or a Loss",
        )
        solvers = ("auto", *SOLVERS)
        check_parameter("solver", solver, solver in solvers, one_of(solvers))
        check_parameter(
            "regularizer",
            regularizer,
            regularizer in REGULARIZERS
            if isinstance(regularizer, str)
            else isinstance(regularizer, Regularizer),
            f"{one_of(REGULARIZERS)} or a Regularizer, such as Trace(0.5)",
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
            "eigen_solver", eigen_solver, eigen_solver in EIGEN_SOLVERS, one_of(EIGEN_SOLVERS)
        )
        # 2) their combination
        F = as_loss(loss)
        R = REGULARIZERS[regularizer]() if isinstance(regularizer, str) else regularizer
        # Only the totally corrective solver decreases M along some directions and not others.
        shrinks = isinstance(R, Shrinkage) and not isinstance(F, Hinge)
        if shrinks and solver == "stagewise":
            raise ValueError(
                f"solver='stagewise' does not work with regularizer={R!r}, because it only adds "
                "directions. Use solver='auto' or 'totally_corrective'."
            )
        if solver == "auto":
            solver = F.solvers[0] if F.solvers else SOLVERS[0]
            solver = "totally_corrective" if shrinks else solver
        # The last one that matches is the most specific class.
        name = next(
            (name for name in reversed(REGULARIZERS) if isinstance(R, REGULARIZERS[name])), ""
        )
        for parameter, value, supported in (
            ("solver", solver, F.solvers),
            ("regularizer", name, F.regularizers),
        ):
            if value and value not in supported:
                names = " or ".join(map(repr, supported)) or "none"
                raise ValueError(
                    f"{parameter}={value!r} does not work with the loss {F!r}. Use {parameter}="
                    f"{names} with this loss, or another loss, such as 'smoothed_hinge', with this "
                    f"{parameter}."
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
        k = None if isinstance(directions_per_step, str) else int(directions_per_step)
        return cls(F, solver, R, float(alpha), int(max_iter), k, tol, eigen_solver)

    def batch_size(self, n_features: int, n_terms: int) -> int:
        """Directions per step for a problem of this size."""
        if self.directions_per_step is not None:
            return self.directions_per_step
        if isinstance(self.loss, Hinge):
            return 2
        if n_features > Operator.DENSE_UP_TO:
            return N_FOLLOWED
        if self.solver == "totally_corrective":
            return min(64, n_features)
        # The responses to a batch are kept in memory: at most 2**25, 256 MB in float64.
        return min(16, n_features, max(N_FOLLOWED, (1 << 25) // n_terms))
