"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M, and

    F(ρ(M)) + R(M)  ≥  F(ρ') + ⟨G', M'⟩ + min over P ⪰ 0 of R(P) − ⟨G', P⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it holds for every convex loss. For the Frobenius norm the minimum is −‖G'₊‖²/(2·alpha). For the
trace it is 0 if G' ⪯ alpha·I, and −∞ if not, unless F is bounded below: then only P with R(P) ≤
objective − lower matter, and the minimum is that times 1 − λ_max(G')/alpha.

The bound is the tighter, the nearer M' is to the optimum, so M' = M + N, where N solves the Newton
equation H[N] = C, H the Hessian of the objective: then G' − ∇R' ≈ G − ∇R − C. With C = G − ∇R (on
the face where the optimum lies) this is a step to the optimum. For the trace it may lead a little
too far; then C = (G' − alpha·I)₊ + a bit of I restores G' ⪯ alpha·I. (Scaling the duals down does
so too, but ruins the bound if alpha is small.)

A bound above the objective of some metric proves itself wrong, and one from a point far outside the
region of M is a difference of huge numbers: both are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh

from boostmetric.problem import Evaluation, Objective
from boostmetric.solvers.newton import Face, own_face, solve_newton_equation, step_face

LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Multiples of the repairing N that are tried; the shortest feasible one counts."""

TIGHT = 1e-9
"""A gap of this share of the objective is small enough to search no further."""

ROUNDING = 16
"""Errors of this many units in the last place are subtracted from a bound."""

NEAR = 1e-3
"""Near the optimum, R(M) and ⟨G, M⟩, which are equal there, differ by at most this share of the
objective."""

MAX_DISTANCE = 1e3
"""Points at which ⟨A_r, M'⟩ exceeds the largest |⟨A_r, M⟩|, or 1, by this factor give no bound."""

REPAIRS = ((1, 0.1), (10, 1.0))
"""How repairs are tried: the effort, and the share of I relative to the largest violation."""


@dataclass(frozen=True, eq=False)
class _Point:
    """A symmetric matrix and the objective there."""

    matrix: NDArray
    at: Evaluation

    @property
    def scatter(self) -> NDArray:
        assert isinstance(self.at.scatter, np.ndarray)
        return self.at.scatter


def tangent_gap(objective: Objective, now: Evaluation) -> float:
    """The gap at M with M' = M, up to rounding: R(M) − ⟨G, M⟩ − min over P ⪰ 0 of R(P) − ⟨G, P⟩.

    It follows from the evaluation at M without any further round.
    """
    assert isinstance(now.scatter, np.ndarray)
    assert objective.M.matrix is not None
    regularizer = objective.regularizer
    budget = now.value - objective.loss.lower
    product = float(np.sum(now.scatter * objective.M.matrix))
    return regularizer.value(objective.M) - product - regularizer.smallest(now.scatter, budget)


def lower_bound(objective: Objective, matrix: NDArray, enough: float = 0.0) -> float:
    """A number that F(ρ(M)) + R(M) exceeds for every M ⪰ 0; −∞ if none was found.

    Parameters
    ----------
    objective : what was minimized
    matrix : array of shape (D, D), the metric that was learned; the nearer it is to the optimum,
        the tighter is the bound
    enough : search no further if the objective exceeds the bound by no more than this

    Notes
    -----
    Some 100 to 300 evaluations of margins, duals and scatter, one or two at the optimum:
    O(m + P·D + n·D²) each for comparisons. What rounding may do to the bound is subtracted.
    """
    # A step may lead too far on degenerate data; a point that is not finite gives no bound.
    with np.errstate(over="ignore", invalid="ignore"):
        here = _point(objective, matrix, math.inf)
        if here is None:
            return -math.inf
        region = MAX_DISTANCE * max(1.0, here.at.largest)
        value = here.at.value
        enough = max(enough, TIGHT * abs(value))
        penalty = objective.regularizer.value_of(matrix)
        # If the coefficients are not even stationary, much effort would be wasted.
        is_near = abs(penalty - np.sum(here.scatter * matrix)) <= NEAR * abs(value)
        bound = _bound(objective, here, value)
        if not here.scatter.any():  # the loss is at its minimum, and its Hessian may be 0
            return bound
        for face_of in (own_face, step_face):
            if value - bound <= enough:
                break
            target = _target(objective, here, face_of(objective, matrix)[0])
            step, _ = solve_newton_equation(objective, matrix, target)
            there = _point(objective, matrix + step, region)
            bound = max(bound, _repaired(objective, there, value, region, REPAIRS[:1]))
        else:
            repairs = REPAIRS if is_near else REPAIRS[:1]
            bound = max(bound, _repaired(objective, here, value, region, repairs))
        return bound


def _target(objective: Objective, point: _Point, face: Face) -> NDArray:
    """G − ∇R, without its negative part off the face on which the optimum may lie.

    There the optimal metric is zero, and G − ∇R may stay negative.
    """
    descent = -objective.gradient_at(point.matrix, point.at)
    excess = face.whiten.T @ descent @ face.whiten
    off = face.off
    if off.size:
        values, vectors = eigh(off.T @ excess @ off)
        excess -= (off @ vectors * np.minimum(values, 0)) @ (off @ vectors).T
    return face.unwhiten @ excess @ face.unwhiten.T


def _point(objective: Objective, matrix: NDArray, region: float) -> _Point | None:
    """None if the matrix, or what follows from it, is not finite, or far outside the region."""
    if not np.isfinite(matrix).all():
        return None
    at = objective.evaluate_at(matrix)
    point = _Point(matrix, at)
    usable = at.largest <= region and math.isfinite(at.value) and np.isfinite(point.scatter).all()
    return point if usable else None


def _bound(objective: Objective, point: _Point | None, value: float) -> float:
    """The bound of a point, −∞ if there is none, for a metric whose objective is `value`."""
    if point is None:
        return -math.inf
    regularizer = objective.regularizer
    loss = point.at.value - regularizer.value_of(point.matrix)
    tangent = loss + float(np.sum(point.scatter * point.matrix))
    # The terms of the sum may be large and cancel, so what rounding can do to it is subtracted.
    values, vectors = eigh(point.matrix)
    absolute = objective.absolute_scatter_at(point.matrix)
    terms = np.einsum("dj,j,dj->", vectors, np.abs(values), absolute @ vectors)
    rounding = ROUNDING * np.finfo(objective.dtype).eps * (abs(loss) + float(terms))
    budget = value - objective.loss.lower
    bound = float(tangent - rounding + regularizer.smallest(point.scatter, budget))
    return bound if bound <= value else -math.inf


def _repaired(
    objective: Objective,
    point: _Point | None,
    value: float,
    region: float,
    repairs: Sequence[tuple[int, float]],
) -> float:
    """The bound of a point, or a better one of a point close by whose scatter is feasible."""
    bound = _bound(objective, point, value)
    threshold = objective.regularizer.threshold
    if point is None or threshold == 0:
        return bound
    values, vectors = eigh(point.scatter)
    excess = np.maximum(values - threshold, 0)
    if excess[-1] == 0:
        return bound
    for effort, shift in repairs:
        target = (vectors * (excess + shift * excess[-1])) @ vectors.T
        step, _ = solve_newton_equation(objective, point.matrix, target, effort=effort)
        for length in LENGTHS:
            moved = _point(objective, point.matrix + length * step, region)
            if moved is not None and eigvalsh(moved.scatter)[-1] <= threshold:
                return max(bound, _bound(objective, moved, value))
    return bound
