"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M, and

    F(ρ(M)) + R(M)  ≥  F(ρ') + ⟨G', M'⟩ + min over P ⪰ 0 of R(P) − ⟨G', P⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it serves every convex loss. The minimum is 0 for the trace if G' ⪯ alpha·I, and −∞ if not; it is
−‖G'₊‖²/(2·alpha) for the Frobenius norm. The bound is the better the nearer M' is to the optimum,
so M' = M + N, where N solves the Newton equation H[N] = C, H the Hessian of the objective: then
G' − ∇R' ≈ G − ∇R − C. With C = G − ∇R (on the face where the optimum lies) this is a step to the
optimum. For the trace it may lead a little too far; then C = (G' − alpha·I)₊ + a bit of I
restores G' ⪯ alpha·I. (Scaling the duals down does so too, but ruins the bound if alpha is small.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space

from boostmetric.eigen import leading_eigenpair
from boostmetric.newton import Face, newton_step, own_face, step_face
from boostmetric.problem import Problem

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Multiples of the repairing N that are tried, the shortest feasible one counts."""

REPAIRS = ((1, 0.1), (5, 1.0))
"""How repairs are tried: the effort, and the share of I relative to the largest violation."""


@dataclass(frozen=True, eq=False)
class _Point:
    """A symmetric matrix with its margins, duals and scatter."""

    matrix: NDArray
    margins: NDArray
    duals: NDArray
    scatter: NDArray


def lower_bound(problem: Problem, matrix: NDArray) -> float:
    """A number that F(ρ(M)) + R(M) exceeds for every M ⪰ 0; −∞ where none was found.

    Parameters
    ----------
    problem : what was minimised
    matrix : array of shape (D, D), the metric that was learned; the nearer it is to the optimum,
        the tighter is the bound

    Notes
    -----
    Some 50 to 150 evaluations of margins, duals and scatter: O(m + P·D + n·D²) each. The bound is
    exact up to rounding in the precision of X.

    Examples
    --------
    >>> from boostmetric import LOSSES, Comparisons, boost
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> fit = boost(X, Comparisons.from_labels(X, X[:, 0] > 0), LOSSES["logistic"])
    >>> bound = lower_bound(fit.problem, fit.metric.matrix)
    >>> bound < fit.objective() < 1.1 * bound
    True
    """
    # A step may lead too far on degenerate data; a point that is not finite gives no bound.
    with np.errstate(over="ignore", invalid="ignore"):
        here = _point(problem, matrix.astype(np.float64))
        bounds = [_repaired(problem, here)]
        for face in (own_face(problem, here.matrix)[0], step_face(problem, here.matrix)[0]):
            target = _target(problem, here, face)
            step, _ = newton_step(problem, here.margins, here.duals, target)
            bounds.append(_repaired(problem, _point(problem, here.matrix + step)))
        return max(bounds)


def _target(problem: Problem, point: _Point, face: Face) -> NDArray:
    """G − ∇R, without its negative part off the face where the optimum may lie.

    There the optimal metric is zero, and G − ∇R may stay negative.
    """
    descent = point.scatter - problem.regularizer.gradient(point.matrix)
    excess = face.whiten.T @ descent @ face.whiten
    off = null_space(face.within.T)
    if off.size:
        values, vectors = eigh(off.T @ excess @ off)
        excess -= (off @ vectors * np.minimum(values, 0)) @ (off @ vectors).T
    return face.unwhiten @ excess @ face.unwhiten.T


def _point(problem: Problem, matrix: NDArray) -> _Point:
    margins = problem.margins_of(matrix)
    duals = problem.duals(margins)
    return _Point(matrix, margins, duals, problem.operator.scatter_matrix(duals).astype(np.float64))


def _bound(problem: Problem, point: _Point) -> float:
    """The bound of a point, −∞ if there is none."""
    if not np.isfinite(point.scatter).all():
        return -math.inf
    tangent = problem.value(point.margins) + float(np.sum(point.scatter * point.matrix))
    return tangent + problem.regularizer.smallest(point.scatter)


def _repaired(problem: Problem, point: _Point) -> float:
    """The bound of a point, or of one close by where it has none."""
    bound = _bound(problem, point)
    if bound > -math.inf or not np.isfinite(point.scatter).all():
        return bound
    values, vectors = eigh(point.scatter)
    excess = np.maximum(values - problem.regularizer.threshold, 0)
    for effort, shift in REPAIRS:
        target = (vectors * (excess + shift * excess[-1])) @ vectors.T
        step, _ = newton_step(problem, point.margins, point.duals, target, effort)
        for length in STEPS:
            bound = _bound(problem, _point(problem, point.matrix + length * step))
            if bound > -math.inf:
                return bound
    return -math.inf


def soft_margin_bound(problem: Problem, duals: NDArray, lambda_max: float | None = None) -> float:
    """A number that the hinge loss of every metric of trace 1 exceeds, by duality (EQ:HingeD2).

    The duals must be feasible: they sum to 1, and none exceeds its price. `lambda_max` is that of
    their scatter, if it is known.
    """
    if lambda_max is None:
        lambda_max, _ = leading_eigenpair(problem.operator.scatter(duals))
    return -lambda_max if problem.gaps is None else float(duals @ problem.gaps) - lambda_max
