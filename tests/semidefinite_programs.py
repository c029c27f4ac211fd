"""The same problems for cvxpy and Clarabel, a solver of semidefinite programs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric import Comparisons


def matrices_of(X: NDArray, c: Comparisons) -> NDArray:
    """The A_r, written out, of shape (m, D, D)."""
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    return np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)


def optimum_of(
    stack: NDArray,
    loss: str,
    regularizer: str,
    alpha: float,
    gaps: NDArray | None = None,
    weights: NDArray | None = None,
) -> float:
    """The smallest objective over M ⪰ 0, for matrices A_r of shape (m, D, D)."""
    cvxpy = pytest.importorskip("cvxpy")
    m, D = stack.shape[:2]
    M = cvxpy.Variable((D, D), PSD=True)
    c = np.ones(m) if weights is None else weights
    margins = stack.reshape(m, D * D) @ cvxpy.vec(M, order="C") - (0 if gaps is None else gaps)
    value = {
        "exponential": lambda: cvxpy.log_sum_exp(np.log(c) - margins),
        "logistic": lambda: c @ cvxpy.logistic(-margins),
        "squared_hinge": lambda: c @ cvxpy.square(cvxpy.pos(1 - margins)),
        # The Huber function of cvxpy is twice the smoothed hinge times its width.
        "smoothed_hinge": lambda: c @ cvxpy.huber(cvxpy.pos(1 - margins), 0.5),
        "squared_error": lambda: c @ cvxpy.square(margins),
    }[loss]()
    cost = {
        "trace": lambda: alpha * cvxpy.trace(M),
        "frobenius": lambda: alpha / 2 * cvxpy.square(cvxpy.norm(M, "fro")),
    }[regularizer]()
    return _solved(cvxpy.Problem(cvxpy.Minimize(value + cost)))


def hinge_optimum_of(
    stack: NDArray, nu: float, gaps: NDArray | None = None, weights: NDArray | None = None
) -> float:
    """min −ρ + v·ξ such that ⟨A_r, M⟩ − b_r ≥ ρ − ξ_r, Tr M = 1, M ⪰ 0."""
    cvxpy = pytest.importorskip("cvxpy")
    m, D = stack.shape[:2]
    c = np.ones(m) if weights is None else weights
    M, rho, xi = cvxpy.Variable((D, D), PSD=True), cvxpy.Variable(), cvxpy.Variable(m, nonneg=True)
    margins = stack.reshape(m, D * D) @ cvxpy.vec(M, order="C") - (0 if gaps is None else gaps)
    cost = -rho + (c / (nu * c.sum())) @ xi
    return _solved(cvxpy.Problem(cvxpy.Minimize(cost), [margins >= rho - xi, cvxpy.trace(M) == 1]))


def optimum_of_comparisons(
    X: NDArray, c: Comparisons, loss: str, alpha: float, regularizer: str = "trace"
) -> float:
    """The smallest objective of comparisons of points."""
    return optimum_of(matrices_of(X, c), loss, regularizer, alpha, c.gaps, c.weights)


def _solved(problem: object) -> float:
    with warnings.catch_warnings():  # some versions call a good solution inaccurate
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver="CLARABEL")  # type: ignore[attr-defined]
    return float(problem.value)  # type: ignore[attr-defined]
