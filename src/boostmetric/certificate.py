"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M. If
G' ⪯ alpha·I, then alpha·Tr M ≥ ⟨G', M⟩ for every M ⪰ 0, and together

    F(ρ(M)) + alpha·Tr M  ≥  F(ρ') + ⟨G', M'⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it serves every convex loss. Where the fit has ended, G ⪯ alpha·I holds only nearly; scaling the
duals down until it holds would ruin the bound when alpha is small. Instead M' = M + N, where N
solves the Newton equation H[N] = C, H the Hessian of F: then G' ≈ G − C. With C = G − alpha·I this
is a step towards the optimum, with C = (G − alpha·I)₊ + a little of I it restores feasibility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from boostmetric.losses import Loss
from boostmetric.problem import Problem

MAX_PRODUCTS = 30
"""Products with the Hessian in one solution of the Newton equation, at most."""

ACCURACY = 1e-2
"""Relative accuracy of that solution."""

DIFFERENCE = 1e-3
"""The largest change of a margin in the difference of duals that stands for the Hessian."""

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Multiples of the repairing N that are tried, the shortest feasible one counts."""

SHIFT = 0.1
"""The share of I in the repair, relative to the largest violation."""


@dataclass(frozen=True, eq=False)
class _Point:
    """A symmetric matrix with its margins, duals and scatter."""

    matrix: NDArray
    margins: NDArray
    duals: NDArray
    scatter: NDArray


def lower_bound(problem: Problem, loss: Loss, alpha: float, matrix: NDArray) -> float:
    """A number that F(ρ(M)) + alpha·Tr M exceeds for every M ⪰ 0; −∞ where none was found.

    Parameters
    ----------
    problem, loss, alpha : what was minimised
    matrix : array of shape (D, D), the metric that was learned; the nearer it is to the optimum,
        the tighter is the bound

    Notes
    -----
    About thirty evaluations of margins, duals and scatter: O(m + P·D + n·D²) each.

    Examples
    --------
    >>> from boostmetric import LOSSES, Comparisons, boost
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> fit = boost(X, Comparisons.from_labels(X, X[:, 0] > 0), LOSSES["logistic"])
    >>> bound = lower_bound(fit.problem, fit.loss, fit.alpha, fit.metric.matrix)
    >>> bound < fit.objective() < 1.1 * bound
    True
    """
    # A step may lead too far on degenerate data; a point that is not finite gives no bound.
    with np.errstate(over="ignore", invalid="ignore"):
        here = _point(problem, loss, matrix.astype(np.float64))
        step = _newton(problem, loss, here, here.scatter - alpha * np.eye(len(matrix)))
        there = _point(problem, loss, here.matrix + step)
        return max(_repaired(problem, loss, alpha, point) for point in (here, there))


def _point(problem: Problem, loss: Loss, matrix: NDArray) -> _Point:
    margins = problem.margins_of(matrix)
    duals = loss.duals(margins, problem.weights)
    return _Point(matrix, margins, duals, problem.scatter_matrix(duals).astype(np.float64))


def _bound(problem: Problem, loss: Loss, alpha: float, point: _Point) -> float:
    """The bound of a point, −∞ if its scatter exceeds alpha or is not finite."""
    if not np.isfinite(point.scatter).all() or eigh(point.scatter, eigvals_only=True)[-1] > alpha:
        return -math.inf
    return loss.value(point.margins, problem.weights) + float(np.sum(point.scatter * point.matrix))


def _repaired(problem: Problem, loss: Loss, alpha: float, point: _Point) -> float:
    """The bound of a point close by whose scatter does not exceed alpha."""
    if not np.isfinite(point.scatter).all():
        return -math.inf
    values, vectors = eigh(point.scatter)
    excess = np.maximum(values - alpha, 0)
    if excess[-1] == 0:
        return _bound(problem, loss, alpha, point)
    target = (vectors * (excess + SHIFT * excess[-1])) @ vectors.T
    step = _newton(problem, loss, point, target)
    for length in STEPS:
        moved = _point(problem, loss, point.matrix + length * step)
        bound = _bound(problem, loss, alpha, moved)
        if bound > -math.inf:
            return bound
    return -math.inf


def _newton(problem: Problem, loss: Loss, point: _Point, target: NDArray) -> NDArray:
    """N with H[N] ≈ target, by conjugate gradients.

    H[N] = Σ_rs F''_rs·⟨A_s, N⟩·A_r is a difference of duals along N. The preconditioner is
    R ↦ K⁻¹·R·K⁻¹, K the sum of all pairs' matrices in the weights of the duals: for differences
    that are normally distributed H is of this form.
    """
    values, vectors = eigh(problem.spread(point.duals).astype(np.float64))
    seen = values > 16 * np.finfo(problem.X.dtype).eps * values[-1]
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T

    def product(N: NDArray) -> NDArray:
        change = problem.values_of(N)
        largest = float(np.abs(change).max())
        if largest == 0:
            return np.zeros_like(N)
        length = DIFFERENCE / largest
        duals = loss.duals(point.margins + change.dtype.type(length) * change, problem.weights)
        return problem.scatter_matrix((point.duals - duals) / length).astype(np.float64)

    solution = np.zeros_like(target)
    residual = target
    search = preconditioned = inverse @ residual @ inverse
    size = initial = float(np.sum(residual * preconditioned))
    for _ in range(MAX_PRODUCTS if initial > 0 else 0):
        image = product(search)
        curvature = float(np.sum(search * image))
        if not curvature > 0:
            break
        solution = solution + size / curvature * search
        residual = residual - size / curvature * image
        preconditioned = inverse @ residual @ inverse
        last, size = size, float(np.sum(residual * preconditioned))
        if size <= ACCURACY**2 * initial:
            break
        search = preconditioned + size / last * search
    return solution if np.isfinite(solution).all() else np.zeros_like(target)
