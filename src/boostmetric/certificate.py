"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M, and

    F(ρ(M)) + R(M)  ≥  F(ρ') + ⟨G', M'⟩ + min over P ⪰ 0 of R(P) − ⟨G', P⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it serves every convex loss. For the Frobenius norm the minimum is −‖G'₊‖²/(2·alpha). For the
trace it is 0 if G' ⪯ alpha·I, and −∞ if not, unless F is bounded below: then no P matters whose
R(P) exceeds objective − lower, and the minimum is that times 1 − λ_max(G')/alpha.

The bound is the better the nearer M' is to the optimum, so M' = M + N, where N solves the Newton
equation H[N] = C, H the Hessian of the objective: then G' − ∇R' ≈ G − ∇R − C. With C = G − ∇R (on
the face where the optimum lies) this is a step to the optimum. For the trace it may lead a little
too far; then C = (G' − alpha·I)₊ + a bit of I restores G' ⪯ alpha·I. (Scaling the duals down does
so too, but ruins the bound if alpha is small.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh

from boostmetric.eigen import leading_eigenpair
from boostmetric.newton import Face, newton_step, own_face, step_face
from boostmetric.problem import Problem

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Multiples of the repairing N that are tried, the shortest feasible one counts."""

TIGHT = 1e-9
"""A gap that is this share of the objective is small enough to look no further."""

ROUNDING = 16
"""Errors of this many units in the last place are allowed for in a bound."""

NEAR = 1e-3
"""R(M) and ⟨G, M⟩, equal at the optimum, differ by no more of the objective near it."""

REPAIRS = ((1, 0.1), (10, 1.0))
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
    Some 100 to 300 evaluations of margins, duals and scatter, one or two at the optimum:
    O(m + P·D + n·D²) each for comparisons. What rounding may do to the bound is taken off.

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
        if here is None:
            return -math.inf
        price = problem.regularizer.value_of(here.matrix)
        objective = problem.value(here.margins) + price
        budget = objective - problem.loss.lower
        # Where the coefficients are not even stationary, much effort would be lost.
        near = abs(price - np.sum(here.scatter * here.matrix)) <= NEAR * abs(objective)
        bound = _bound(problem, here, budget)
        for face_of in (own_face, step_face):
            if objective - bound <= TIGHT * abs(objective):
                break
            target = _target(problem, here, face_of(problem, here.matrix)[0])
            step, _ = newton_step(problem, here.margins, here.duals, target)
            there = _point(problem, here.matrix + step)
            bound = max(bound, _repaired(problem, there, budget, REPAIRS[:1]))
        else:
            bound = max(bound, _repaired(problem, here, budget, REPAIRS if near else REPAIRS[:1]))
        return bound


def _target(problem: Problem, point: _Point, face: Face) -> NDArray:
    """G − ∇R, without its negative part off the face where the optimum may lie.

    There the optimal metric is zero, and G − ∇R may stay negative.
    """
    descent = point.scatter - problem.regularizer.gradient(point.matrix)
    excess = face.whiten.T @ descent @ face.whiten
    off = face.off
    if off.size:
        values, vectors = eigh(off.T @ excess @ off)
        excess -= (off @ vectors * np.minimum(values, 0)) @ (off @ vectors).T
    return face.unwhiten @ excess @ face.unwhiten.T


def _point(problem: Problem, matrix: NDArray) -> _Point | None:
    """None where the matrix, or what follows from it, is not finite."""
    if not np.isfinite(matrix).all():
        return None
    margins = problem.margins_of(matrix)
    duals = problem.duals(margins)
    scatter = problem.operator.scatter_matrix(duals).astype(np.float64)
    return _Point(matrix, margins, duals, scatter) if np.isfinite(scatter).all() else None


def _bound(problem: Problem, point: _Point | None, budget: float) -> float:
    """The bound of a point, −∞ if there is none."""
    if point is None:
        return -math.inf
    value = problem.value(point.margins)
    tangent = value + float(np.sum(point.scatter * point.matrix))
    # The terms of the sum may be large and cancel, so what rounding can do to it is taken off.
    values, vectors = eigh(point.matrix)
    spread = problem.operator.spread(np.abs(point.duals)).astype(np.float64)
    terms = np.einsum("dj,j,dj->", vectors, np.abs(values), spread @ vectors)
    rounding = ROUNDING * np.finfo(problem.operator.dtype).eps * (abs(value) + float(terms))
    return float(tangent - rounding + problem.regularizer.smallest(point.scatter, budget))


def _repaired(
    problem: Problem,
    point: _Point | None,
    budget: float,
    repairs: Sequence[tuple[int, float]],
) -> float:
    """The bound of a point, or a better one of a point close by whose scatter fits."""
    bound = _bound(problem, point, budget)
    threshold = problem.regularizer.threshold
    if point is None or threshold == 0:
        return bound
    values, vectors = eigh(point.scatter)
    excess = np.maximum(values - threshold, 0)
    if excess[-1] == 0:
        return bound
    for effort, shift in repairs:
        target = (vectors * (excess + shift * excess[-1])) @ vectors.T
        step, _ = newton_step(problem, point.margins, point.duals, target, effort)
        for length in STEPS:
            moved = _point(problem, point.matrix + length * step)
            if moved is not None and eigvalsh(moved.scatter)[-1] <= threshold:
                return max(bound, _bound(problem, moved, budget))
    return bound


def soft_margin_bound(problem: Problem, duals: NDArray, lambda_max: float | None = None) -> float:
    """A number that the hinge loss of every metric of trace 1 exceeds, by duality (EQ:HingeD2).

    The duals must be feasible: they sum to 1, and none exceeds its price. `lambda_max` is that of
    their scatter, if it is known.
    """
    if lambda_max is None:
        lambda_max, _ = leading_eigenpair(problem.operator.scatter(duals))
    return -lambda_max if problem.gaps is None else float(duals @ problem.gaps) - lambda_max
