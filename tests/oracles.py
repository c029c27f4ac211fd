"""Reference implementations by definition and by general solvers; nothing here uses boostmetric."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import issparse


def matrices_of(X: NDArray, comparisons: Any) -> NDArray:
    """The matrices A_r of comparisons of points, of shape (m, D, D)."""
    differences = X[comparisons.pairs[:, 0]] - X[comparisons.pairs[:, 1]]
    near, far = differences[comparisons.near], differences[comparisons.far]
    return np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)


def solve_sdp(
    stack: NDArray,
    loss: str,
    regularizer: str,
    alpha: float,
    gaps: NDArray | None = None,
    weights: NDArray | None = None,
    *,
    width: float = 0.5,
    nu: float = 0.3,
    trace: float = 1.0,
    center: float = 0.0,
) -> tuple[float, NDArray]:
    """The smallest objective over M ⪰ 0 and its minimizer, by cvxpy and Clarabel.

    `stack` contains the matrices A_r and has shape (m, D, D). The hinge has the constraint
    Tr M = trace instead of a regularizer; `center` is that of "shrinkage".
    """
    cp = pytest.importorskip("cvxpy")
    m, D = stack.shape[:2]
    c = np.ones(m) if weights is None else weights
    M = cp.Variable((D, D), PSD=True)
    margins = stack.reshape(m, D * D) @ cp.vec(M, order="C") - (0 if gaps is None else gaps)
    constraints = []
    if loss == "hinge":
        rho = cp.Variable()
        objective = -rho + (c / (nu * c.sum())) @ cp.pos(rho - margins)
        constraints = [cp.trace(M) == trace]
    else:
        objective = {
            "exponential": lambda: cp.log_sum_exp(np.log(c) - margins),
            "logistic": lambda: c @ cp.logistic(-margins),
            "squared_hinge": lambda: c @ cp.square(cp.pos(1 - margins)),
            # The Huber function of cvxpy is the smoothed hinge times twice its width.
            "smoothed_hinge": lambda: c @ cp.huber(cp.pos(1 - margins), width) / (2 * width),
            "squared_error": lambda: c @ cp.square(margins),
        }[loss]()
        objective += {
            "trace": lambda: alpha * cp.trace(M),
            # With a matrix instead of a vector, cvxpy 1.6 returns wrong optima.
            "frobenius": lambda: alpha / 2 * cp.sum_squares(cp.vec(M, order="C")),
            "shrinkage": lambda: (
                alpha / 2 * cp.sum_squares(cp.vec(M - center * np.eye(D), order="C"))
            ),
        }[regularizer]()
    problem = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():  # some versions call a good solution inaccurate
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL")
    return float(problem.value), M.value


def optimum_of(
    stack: NDArray,
    loss: str,
    regularizer: str,
    alpha: float,
    gaps: NDArray | None = None,
    weights: NDArray | None = None,
) -> float:
    """The smallest objective over M ⪰ 0."""
    return solve_sdp(stack, loss, regularizer, alpha, gaps, weights)[0]


def hinge_optimum_of(
    stack: NDArray, nu: float, gaps: NDArray | None = None, weights: NDArray | None = None
) -> float:
    """min −ρ + Σ_r c_r·ξ_r / (ν·Σc) such that ⟨A_r, M⟩ − b_r ≥ ρ − ξ_r, ξ ≥ 0, Tr M = 1, M ⪰ 0."""
    return solve_sdp(stack, "hinge", "trace", 0.0, gaps, weights, nu=nu)[0]


def optimum_of_comparisons(
    X: NDArray, comparisons: Any, loss: str, alpha: float, regularizer: str = "trace"
) -> float:
    """The smallest objective of comparisons of points."""
    stack = matrices_of(X, comparisons)
    return optimum_of(stack, loss, regularizer, alpha, comparisons.gaps, comparisons.weights)


class Reference:
    """The objective of comparisons by its definition, in float64.

    Metrics are any objects with `directions` (unit columns) and `coefs`.

    Parameters
    ----------
    X : points, dense or sparse
    comparisons : an object with `pairs`, `near`, `far`, `gaps` and `weights`
    loss : name of the loss
    parameter : width of the smoothed hinge, or nu of the hinge; other losses do not use it
    regularizer : name of the regularizer
    alpha : absolute strength of the regularizer; not used for the hinge
    """

    def __init__(
        self,
        X: Any,
        comparisons: Any,
        loss: str,
        parameter: float,
        regularizer: str,
        alpha: float,
    ) -> None:
        self.loss, self.parameter, self.regularizer = loss, parameter, regularizer
        self.alpha = 0.0 if loss == "hinge" else alpha
        points = np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)
        m = len(comparisons.near)
        weights = np.ones(m) if comparisons.weights is None else comparisons.weights
        gaps = np.zeros(m) if comparisons.gaps is None else comparisons.gaps
        counted = weights > 0
        self.weights, self.gaps = weights[counted], gaps[counted]
        self.near, self.far = comparisons.near[counted], comparisons.far[counted]
        i, j = comparisons.pairs.T
        self.differences = points[i] - points[j]
        # Rounding errors are relative to these. Sparse points are not centered.
        sizes = np.abs(points if issparse(X) else points - points.mean(axis=0))
        self.sizes = sizes[i] + sizes[j]
        self.eps, self.tiny = float(np.finfo(X.dtype).eps), float(np.finfo(X.dtype).tiny)

    def margins(self, metric: Any) -> NDArray:
        """The margins of the comparisons of positive weight."""
        squares = (self.differences @ metric.directions.astype(np.float64)) ** 2 @ metric.coefs
        margins: NDArray = squares[self.far] - squares[self.near] - self.gaps
        return margins

    def value(self, metric: Any) -> float:
        """F + R; for the hinge only F."""
        return self.value_of_loss(self.margins(metric)) + self.penalty(metric)

    def penalty(self, metric: Any) -> float:
        """R."""
        V, w = metric.directions.astype(np.float64), metric.coefs
        if self.regularizer == "trace":
            return self.alpha * float(w.sum())
        return self.alpha / 2 * float(w @ (V.T @ V) ** 2 @ w)

    def value_of_loss(self, margins: NDArray) -> float:
        """F."""
        c, width = self.weights, self.parameter
        slack = np.maximum(1 - margins, 0)
        match self.loss:
            case "exponential":
                exponents = np.log(c) - margins
                return float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
            case "logistic":
                return float(c @ np.logaddexp(0, -margins))
            case "squared_hinge":
                return float(c @ slack**2)
            case "smoothed_hinge":
                quadratic = slack**2 / (2 * width)
                return float(c @ np.where(slack <= width, quadratic, slack - width / 2))
            case "hinge":
                # The maximum over ρ of a concave function that is linear between the margins.
                prices = c / (self.parameter * c.sum())
                return float(np.min(np.maximum(margins[:, None] - margins, 0) @ prices - margins))
        raise ValueError(self.loss)

    def rounding(self, metric: Any, n_steps: int) -> float:
        """A bound of the rounding error in the objective of a fit in the dtype of X."""
        V = np.abs(metric.directions.astype(np.float64))
        squares = (self.sizes @ V) ** 2 @ metric.coefs
        errors = squares[self.far] + squares[self.near] + np.abs(self.gaps)
        margins = self.margins(metric)
        duals = self.largest_duals(margins, 8 * self.eps * errors)
        size = abs(self.value_of_loss(margins)) + self.penalty(metric) + float(duals @ errors)
        # Terms below the smallest normal number have fewer digits.
        underflow = float(self.weights.sum()) * self.tiny
        return 4 * (8 + n_steps) * self.eps * (size + underflow)

    def largest_duals(self, margins: NDArray, errors: NDArray) -> NDArray:
        """Upper bounds of the duals if the margins are lower by at most these errors."""
        c, low = self.weights, margins - errors
        match self.loss:
            case "exponential":
                exponents = np.log(c) - margins
                largest = np.exp(np.minimum(exponents + errors - exponents.max(), 0))
                return np.minimum(largest / np.exp(exponents - exponents.max()).sum(), 1)
            case "logistic":
                return c * np.exp(-np.logaddexp(0, low))
            case "squared_hinge":
                return 2 * c * np.maximum(1 - low, 0)
            case "smoothed_hinge":
                return c * np.clip((1 - low) / self.parameter, 0, 1)
            case "hinge":
                return np.minimum(c / (self.parameter * c.sum()), 1)
        raise ValueError(self.loss)

    def optimum(self, trace: float) -> tuple[NDArray, NDArray] | None:
        """Directions and coefficients of the best metric by `solve_sdp`, or None if it fails.

        Only the hinge uses the trace.
        """
        # Differences of size 1 suit the solver; the objective does not change, because M is
        # multiplied by size². All pairs may be of equal points.
        size = float(np.abs(self.differences).max()) or 1.0
        Z = self.differences / size
        stack = np.einsum("ri,rj->rij", Z[self.far], Z[self.far])
        stack -= np.einsum("ri,rj->rij", Z[self.near], Z[self.near])
        alpha = self.alpha / (size**2 if self.regularizer == "trace" else size**4)
        options = {"width": self.parameter, "nu": self.parameter, "trace": trace * size**2}
        try:
            _, M = solve_sdp(
                stack, self.loss, self.regularizer, alpha, self.gaps, self.weights, **options
            )
        except pytest.importorskip("cvxpy").SolverError:
            return None
        if M is None or not np.isfinite(M).all():
            return None
        eigenvalues, directions = np.linalg.eigh((M + M.T) / 2)
        coefs = np.maximum(eigenvalues, 0) / size**2
        if self.loss == "hinge":
            coefs *= trace / coefs.sum()
        return directions, coefs
