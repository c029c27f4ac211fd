"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M. If
G' ⪯ alpha·I, then alpha·Tr M ≥ ⟨G', M⟩ for every M ⪰ 0, and together

    F(ρ(M)) + alpha·Tr M  ≥  F(ρ') + ⟨G', M'⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it serves every convex loss. Where the fit has ended, G ⪯ alpha·I holds only nearly; scaling the
duals down until it holds would ruin the bound when alpha is small. Instead M' = M + N, where N
solves the Newton equation H[N] = C, H the Hessian of F: then G' ≈ G − C. With C = G − alpha·I (on
the face of the cone where the optimum lies) this is a step towards the optimum, with
C = (G − alpha·I)₊ + a little of I it restores feasibility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space

from boostmetric.losses import Loss
from boostmetric.newton import newton_face, newton_step
from boostmetric.problem import Problem

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
    Some 25 to 60 evaluations of margins, duals and scatter: O(m + P·D + n·D²) each. The bound is
    exact up to rounding in the precision of X.

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
        step, _ = newton_step(
            problem, loss, here.margins, here.duals, _target(problem, loss, alpha, here)
        )
        there = _point(problem, loss, here.matrix + step)
        return max(_repaired(problem, loss, alpha, point) for point in (here, there))


def _target(problem: Problem, loss: Loss, alpha: float, point: _Point) -> NDArray:
    """G − alpha·I, without its negative part off the face of the Newton step.

    There the optimal metric is zero, and its scatter may stay below alpha.
    """
    face = newton_face(problem, loss, alpha, point.matrix)
    excess = face.whiten.T @ (point.scatter - alpha * np.eye(len(point.scatter))) @ face.whiten
    off = null_space(face.within.T)
    if off.size:
        values, vectors = eigh(off.T @ excess @ off)
        excess -= (off @ vectors * np.minimum(values, 0)) @ (off @ vectors).T
    return face.unwhiten @ excess @ face.unwhiten.T


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
    step, _ = newton_step(problem, loss, point.margins, point.duals, target)
    for length in STEPS:
        moved = _point(problem, loss, point.matrix + length * step)
        bound = _bound(problem, loss, alpha, moved)
        if bound > -math.inf:
            return bound
    return -math.inf
