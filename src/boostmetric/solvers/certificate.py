"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M, and

    F(ρ(M)) + R(M)  ≥  F(ρ') + ⟨G', M'⟩ + min over P ⪰ 0 of R(P) − ⟨G', P⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it holds for every convex loss. For the Frobenius norm the minimum is −‖G'₊‖²/(2·alpha). For the
trace it is 0 if G' ⪯ alpha·I, and −∞ if not, unless F is bounded below: then only P with R(P) ≤
objective − lower matter, and the minimum is that times 1 − λ_max(G')/alpha.

The closer M' is to the optimum, the tighter is the bound. Therefore M' = M + N, and N solves the
Newton equation H[N] = C with the Hessian H of the objective: then G' − ∇R' ≈ G − ∇R − C. With
C = G − ∇R (on the face of the optimum) this is a step to the optimum. For the trace it may go
slightly too far; then a repair with C = (G' − alpha·I)₊ plus a small multiple of I restores
G' ⪯ alpha·I. (Scaling down the duals does so, too, but ruins the bound if alpha is small.)

A bound above the objective of some metric is wrong, and a bound from a point far from M is a
difference of huge numbers: both are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh

from boostmetric.problem import Evaluation, Objective
from boostmetric.solvers.newton import own_face, solve_newton_equation, step_face

REPAIRS = ((1, 0.1), (10, 1.0))
"""Effort of each repair, and the multiple of I relative to the largest violation."""


@dataclass(frozen=True, eq=False)
class _Point:
    """A symmetric matrix, and the objective and scatter there."""

    matrix: NDArray
    at: Evaluation
    scatter: NDArray


def tangent_gap(objective: Objective, now: Evaluation) -> float:
    """The gap at M with M' = M, up to rounding: R(M) − ⟨G, M⟩ − min over P ⪰ 0 of R(P) − ⟨G, P⟩.

    It follows from the evaluation at M without another round.
    """
    assert isinstance(now.scatter, np.ndarray)
    assert objective.M.matrix is not None
    regularizer = objective.regularizer
    budget = now.value - objective.loss.lower
    product = float(np.sum(now.scatter * objective.M.matrix))
    return regularizer.value(objective.M) - product - regularizer.smallest(now.scatter, budget)


def lower_bound(objective: Objective, matrix: NDArray, enough: float = 0.0) -> float:
    """A lower bound of F(ρ(M)) + R(M) over M ⪰ 0; −∞ if none was found.

    Parameters
    ----------
    objective : the objective that was minimized
    matrix : array of shape (D, D), the learned metric; the closer it is to the optimum, the tighter
        is the bound
    enough : end the search if the objective exceeds the bound by at most this

    Notes
    -----
    About 100 to 300 evaluations of margins, duals and scatter, one or two at the optimum:
    O(m + P·D + n·D²) each for comparisons. Possible rounding errors are subtracted from the bound.
    """
    # A step may go too far on degenerate data; a point that is not finite gives no bound.
    with np.errstate(over="ignore", invalid="ignore"):
        # 1) the bound with M' = M
        here = _evaluate(objective, matrix, math.inf)
        if here is None:
            return -math.inf
        # Points with larger |⟨A_r, M'⟩| are far from M; a relative gap of 1e-9 is small enough.
        value, region = here.at.value, 1e3 * max(1.0, here.at.largest)
        enough = max(enough, 1e-9 * abs(value))
        bound = _bound(objective, here, value)
        if not here.scatter.any():  # the loss is at its minimum, and its Hessian may be 0
            return bound
        for face_of in (own_face, step_face):
            if value - bound <= enough:
                break
            # 2) a Newton step, without the negative part of G − ∇R off the face: the optimum is
            # zero there, and G − ∇R may stay negative
            face = face_of(objective, matrix)[0]
            excess = -face.whiten.T @ objective.gradient_at(matrix, here.at) @ face.whiten
            off = face.off
            if off.size:
                values, vectors = eigh(off.T @ excess @ off)
                excess -= (off @ vectors * np.minimum(values, 0)) @ (off @ vectors).T
            target = face.unwhiten @ excess @ face.unwhiten.T
            step, _ = solve_newton_equation(objective, matrix, target)
            there = _evaluate(objective, matrix + step, region)
            bound = max(bound, _repaired_bound(objective, there, value, region, REPAIRS[:1]))
        else:
            # 3) a repair at M; if R(M) and ⟨G, M⟩, which are equal at the optimum, differ, the
            # coefficients are not even stationary, and more effort would be wasted
            penalty = objective.regularizer.value_of(matrix)
            is_near = abs(penalty - np.sum(here.scatter * matrix)) <= 1e-3 * abs(value)
            repairs = REPAIRS if is_near else REPAIRS[:1]
            bound = max(bound, _repaired_bound(objective, here, value, region, repairs))
        return bound


def _evaluate(objective: Objective, matrix: NDArray, region: float) -> _Point | None:
    """The objective at a matrix; None if it is not finite or an |⟨A_r, M'⟩| exceeds the region."""
    if not np.isfinite(matrix).all():
        return None
    at = objective.evaluate_at(matrix)
    assert isinstance(at.scatter, np.ndarray)
    usable = at.largest <= region and math.isfinite(at.value) and np.isfinite(at.scatter).all()
    return _Point(matrix, at, at.scatter) if usable else None


def _bound(objective: Objective, point: _Point | None, value: float) -> float:
    """The bound from a point, or −∞, given the objective `value` of a metric."""
    if point is None:
        return -math.inf
    regularizer = objective.regularizer
    loss = point.at.value - regularizer.value_of(point.matrix)
    tangent = loss + float(np.sum(point.scatter * point.matrix))
    # The terms of the sum may be large and cancel. Their rounding errors, 16 units in the last
    # place, are subtracted.
    values, vectors = eigh(point.matrix)
    absolute = objective.absolute_scatter_at(point.matrix)
    terms = np.einsum("dj,j,dj->", vectors, np.abs(values), absolute @ vectors)
    rounding = 16 * np.finfo(objective.dtype).eps * (abs(loss) + float(terms))
    budget = value - objective.loss.lower
    bound = float(tangent - rounding + regularizer.smallest(point.scatter, budget))
    return bound if bound <= value else -math.inf


def _repaired_bound(
    objective: Objective,
    point: _Point | None,
    value: float,
    region: float,
    repairs: Sequence[tuple[int, float]],
) -> float:
    """The bound from a point, or a better one from a nearby point whose scatter is feasible."""
    bound = _bound(objective, point, value)
    threshold = objective.regularizer.threshold
    if point is None or threshold <= 0:
        return bound
    values, vectors = eigh(point.scatter)
    excess = np.maximum(values - threshold, 0)
    if excess[-1] == 0:
        return bound
    for effort, shift in repairs:
        target = (vectors * (excess + shift * excess[-1])) @ vectors.T
        step, _ = solve_newton_equation(objective, point.matrix, target, effort=effort)
        for length in (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0):  # the shortest feasible step
            moved = _evaluate(objective, point.matrix + length * step, region)
            if moved is not None and eigvalsh(moved.scatter)[-1] <= threshold:
                return max(bound, _bound(objective, moved, value))
    return bound
