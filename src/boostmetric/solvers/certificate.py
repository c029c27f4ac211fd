"""A certificate of optimality: a lower bound on the objective of every metric.

Duality. For any symmetric matrix M', a metric or not, let ρ' be its margins, u' = −∇F(ρ') its duals
and G' = Σ u'_r·A_r its scatter. F is convex, so F(ρ(M)) ≥ F(ρ') − ⟨G', M − M'⟩ for every M, and

    F(ρ(M)) + R(M)  ≥  F(ρ') + ⟨G', M'⟩ + min over P ⪰ 0 of R(P) − ⟨G', P⟩.

The right-hand side is the dual objective at u' (EQ:D1, EQ:4C), written without the conjugate of F,
so it holds for every convex loss. For the Frobenius norm the minimum is −‖G'₊‖²/(2·alpha). For the
trace it is 0 if G' ⪯ alpha·I, and −∞ if not, unless F is bounded below: then only P with R(P) ≤
objective − lower matter, and the minimum is that times 1 − λ_max(G')/alpha.

The closer M' is to the optimum, the tighter is the bound. Therefore, unless M itself gives a tight
bound, M' is the result of optimizing further from M (`factors.polish`). For the trace, alpha is
then slightly reduced, so that G' ⪯ alpha·I holds before the optimum is reached.

A bound above the objective of some metric is wrong, and a bound from a point far from M is a
difference of huge numbers: both are discarded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from boostmetric.problem import Evaluation, Objective
from boostmetric.solvers.factors import orthogonal_directions, polish

BUDGETS = (64, 128, 256, 256)
"""Evaluations for attempts to find a better point; the directions are extended before each."""


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
    About 30 to 500 evaluations of margins, duals and scatter, one or two at the optimum:
    O(m + P·D + n·D²) each for comparisons. Possible rounding errors are subtracted from the bound.
    """
    # A step may go too far on degenerate data; a point that is not finite gives no bound.
    with np.errstate(over="ignore", invalid="ignore"):
        # 1) the bound with M' = M
        here = _evaluate(objective, matrix)
        if here is None:
            return -math.inf
        value = here.at.value
        enough = max(enough, 1e-9 * abs(value))  # a smaller gap is not worth the effort
        bound = _bound(objective, here, value)
        # 2) M' closer to the optimum
        regularizer = objective.regularizer
        penalty = regularizer.value_of(matrix)
        reduction = min(max(0.25 * enough / penalty, 1e-6), 0.5) if penalty > 0 else 0.0
        values, vectors = eigh(matrix)
        root = vectors[:, values > 0] * np.sqrt(values[values > 0])
        for budget in BUDGETS:
            if value - bound <= enough or not here.scatter.any():
                break
            try:
                if regularizer.threshold > 0:
                    objective.regularizer = replace(
                        regularizer, alpha=(1 - reduction) * regularizer.strength
                    )
                root = _polished(objective, here, root, budget)
            finally:
                objective.regularizer = regularizer
            there = _evaluate(objective, root @ root.T)
            if there is None:
                break
            here = there
            bound = max(bound, _bound(objective, here, value))
            reduction = min(30 * reduction, 0.5)  # rounding may prevent a smaller one
            if here.at.value - bound < 0.1 * (value - bound) < math.inf:
                break  # the bound is nearly the optimum
        return bound


def _polished(objective: Objective, here: _Point, root: NDArray, budget: int) -> NDArray:
    """A factor of a metric closer to the optimum, from a factor with more columns."""
    values, vectors = eigh(-objective.gradient_at(here.matrix, here.at))
    new = vectors[:, values > 0]
    directions, coefs = orthogonal_directions(root, np.float64)
    root = directions * np.sqrt(coefs)
    size = float(np.linalg.norm(root))
    if size == 0:  # M = 0
        largest = objective.response_sizes(new).max(initial=0.0)
        if largest == 0:
            return root
        size = largest**-0.5
    # New columns must not be 0, where the gradient vanishes, but large ones would spoil an M that
    # is nearly optimal.
    value = objective.evaluate_at(root @ root.T, with_scatter=False).value
    for share in (0.1, 1e-2, 1e-3, 1e-4):
        extended = np.column_stack([root, share * size / len(new) ** 0.5 * new])
        if objective.evaluate_at(extended @ extended.T, with_scatter=False).value < value:
            root = extended
            break
    return polish(objective, root, budget)[0] if root.size else root


def _evaluate(objective: Objective, matrix: NDArray) -> _Point | None:
    """The objective at a matrix; None if it is not finite."""
    if not np.isfinite(matrix).all():
        return None
    at = objective.evaluate_at(matrix)
    assert isinstance(at.scatter, np.ndarray)
    usable = math.isfinite(at.value) and np.isfinite(at.scatter).all()
    return _Point(matrix, at, at.scatter) if usable else None


def _bound(objective: Objective, point: _Point, value: float) -> float:
    """The bound from a point, or −∞, given the objective `value` of a metric."""
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
