"""Coefficients of several directions together: of all (Algorithm 4), or of a block of new ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from boostmetric.metric import Metric
from boostmetric.operators import Operator
from boostmetric.problem import Problem
from boostmetric.regularizers import CoefCost
from boostmetric.stagewise import ENOUGH

COLUMNS_UP_TO = 4
"""With more directions than this times D, margins are computed through M and not by direction."""

MAX_ENTRIES = 1 << 25
"""Likewise if there were more measures than this (256 MB in float64)."""

MAX_EVALUATIONS = 100
"""Evaluations of value and gradient in one correction, at most."""

FAR = 1e8
"""Size of ⟨A_r, M⟩ at which the slope of the objective tells whether it is bounded below."""


@dataclass(eq=False)
class Correction:
    """Directions with their best coefficients, and the margins and duals that they lead to.

    `columns` holds the operator's measures of the directions, or None if there are too many;
    `bounded` is False where the objective falls for ever as M grows.
    """

    directions: NDArray
    coefs: NDArray
    margins: NDArray
    duals: NDArray
    columns: NDArray | None
    n_evaluations: int
    bounded: bool


def correct(
    problem: Problem,
    directions: NDArray,
    coefs: NDArray,
    accuracy: float,
    columns: NDArray | None = None,
) -> Correction:
    """Minimise F(ρ) + R(M) over the coefficients w ≥ 0 of given directions.

    Directions that end with the coefficient 0 are dropped.

    Parameters
    ----------
    directions, coefs : arrays of shape (D, J) and (J,), where the search begins
    accuracy : the largest projected slope that may remain, in the units of alpha
    columns : `Correction.columns` of an earlier correction that had the first of the directions

    Notes
    -----
    An evaluation needs the measures of all directions, O(P·J) with P = 2·k·n for k targets and k
    impostors, while directions are few, and goes through M otherwise (`COLUMNS_UP_TO`,
    `MAX_ENTRIES`), O(P·D + n·D²); comparisons × directions are never formed.
    """
    columns = _columns(problem.operator, directions, columns)
    evaluate = _by_matrix(problem, directions) if columns is None else _by_column(problem, columns)
    cost = problem.regularizer.of_coefs(directions)
    scale = _scale(problem, directions, columns)
    tolerances, highest = np.full(len(coefs), accuracy), np.full(len(coefs), np.inf)
    found = _descend(problem, evaluate, cost, coefs, highest, scale, tolerances)
    kept = found.coefs > 0
    return Correction(
        directions=directions[:, kept],
        coefs=found.coefs[kept],
        margins=found.margins,
        duals=found.duals,
        columns=None if columns is None else columns[:, kept],
        n_evaluations=found.n_evaluations,
        bounded=_is_bounded(problem, evaluate, cost, found.coefs),
    )


def correct_block(
    problem: Problem, metric: Metric, margins: NDArray, block: NDArray, accuracy: float
) -> Correction:
    """Add a block of directions to a metric, with the coefficients that are best together.

    All older coefficients are multiplied by a factor s ≤ 1, found with those of the block: what
    was taken too far by an earlier step, which knew less, is taken back. This is the block form of
    the line search; it costs the measures of the block alone, whatever the metric has.

    Parameters
    ----------
    metric, margins : what there is
    block : array of shape (D, k), unit columns
    accuracy : as for `correct`

    Returns
    -------
    Correction, of all directions; `bounded` is False where the objective falls for ever as the
    part that was added grows
    """
    columns = problem.operator.measures(block)
    directions = np.column_stack([metric.directions, block])
    old = metric.coefs.astype(np.float64)
    evaluate = _by_block(problem, columns, problem.plus_gaps(margins))
    cost = _cost_of_block(problem.regularizer.of_coefs(directions), old)
    scale = np.append(1.0, _scale(problem, block, columns))
    start = np.append(1.0, np.zeros(block.shape[1]))
    # On comparisons that can be satisfied there may be no end to what pays.
    largest = max(1.0, float(np.abs(margins).max()))
    highest = np.append(1.0, ENOUGH * largest * scale[1:])
    tolerances = accuracy * np.append(old.sum(), np.ones(block.shape[1]))
    found = _descend(problem, evaluate, cost, start, highest, scale, tolerances)
    factor, new = found.coefs[0], found.coefs[1:]
    coefs = np.concatenate([factor * old, new])
    kept = coefs > 0
    return Correction(
        directions=directions[:, kept],
        coefs=coefs[kept],
        margins=found.margins,
        duals=found.duals,
        columns=None,
        n_evaluations=found.n_evaluations,
        bounded=_is_bounded(problem, evaluate, cost, np.append(0.0, new)),
    )


Evaluate = Callable[[NDArray], tuple[NDArray, Callable[[NDArray], NDArray]]]
"""From coefficients to margins, and to the map from duals to the slopes vᵀÂv of the directions."""


@dataclass(eq=False)
class _Minimum:
    """Coefficients, and the margins and duals that they lead to."""

    coefs: NDArray
    margins: NDArray
    duals: NDArray
    n_evaluations: int


def _descend(
    problem: Problem,
    evaluate: Evaluate,
    cost: CoefCost,
    start: NDArray,
    highest: NDArray,
    scale: NDArray,
    tolerances: NDArray,
) -> _Minimum:
    """Minimise F(ρ(w)) + R(w) over 0 ≤ w ≤ highest by L-BFGS-B.

    The search ends when no projected slope exceeds its tolerance. `scale` holds changes of w that
    matter about equally.
    """
    highest = highest / scale
    last, ascent = _Minimum(start, start, start, 0), np.zeros(len(start))

    def objective(z: NDArray) -> tuple[float, NDArray]:
        nonlocal last, ascent
        coefs = z * scale
        margins, slopes = evaluate(coefs)
        price, prices = cost(coefs)
        value, duals = problem.value_and_duals(margins)
        last = _Minimum(coefs, margins, duals, last.n_evaluations + 1)
        ascent = prices - slopes(duals)
        return value + price, scale * ascent

    def stop(z: NDArray) -> None:
        # L-BFGS-B's own rule would take a small coefficient for a small slope.
        down, up = np.where(z > 0, ascent, 0), np.where(z < highest, -ascent, 0)
        if (np.maximum(down, up) <= tolerances).all():
            raise StopIteration

    found = minimize(
        objective,
        start / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, high) for high in highest],
        callback=stop,
        options={"maxcor": 20, "maxfun": MAX_EVALUATIONS, "ftol": 1e-15, "gtol": 0.0},
    )
    if not np.array_equal(found.x * scale, last.coefs):  # it ended at an earlier point
        objective(found.x)
    return last


def _scale(problem: Problem, directions: NDArray, columns: NDArray | None) -> NDArray:
    """Coefficients of the directions that change responses by about 1, by their weights."""
    operator = problem.operator
    weights = problem.weights
    if weights is None:
        weights = np.ones(operator.n_matrices, dtype=operator.dtype)
    if columns is not None:
        sizes = operator.collect_sizes(weights).astype(columns.dtype, copy=False) @ np.abs(columns)
    else:
        sizes = np.einsum("dj,dj->j", directions, operator.spread(weights) @ directions)
    sizes = sizes.astype(np.float64) / float(weights.sum(dtype=np.float64))
    return 1 / np.maximum(sizes, np.finfo(operator.dtype).tiny)


def _columns(operator: Operator, directions: NDArray, known: NDArray | None) -> NDArray | None:
    """The measures (P, J) of the directions, those that are known not computed again."""
    n_known = 0 if known is None else known.shape[1]
    n_directions = directions.shape[1]
    if n_directions > min(COLUMNS_UP_TO * operator.n_features, MAX_ENTRIES // operator.n_measures):
        return None
    new = operator.measures(directions[:, n_known:])
    return new if known is None else np.column_stack([known, new])


def _by_column(problem: Problem, columns: NDArray) -> Evaluate:
    operator = problem.operator

    def evaluate(coefs: NDArray) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        measures = columns @ coefs.astype(columns.dtype)
        margins = problem.less_gaps(operator.expand(measures))
        return (
            margins,
            lambda duals: operator.collect(duals).astype(columns.dtype, copy=False) @ columns,
        )

    return evaluate


def _by_block(problem: Problem, columns: NDArray, values: NDArray) -> Evaluate:
    """The first coefficient is the factor of what there is, with ⟨A_r, M⟩ as `values`."""
    operator = problem.operator

    def evaluate(coefs: NDArray) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        total = operator.expand(columns @ coefs[1:].astype(columns.dtype))
        total += values.dtype.type(coefs[0]) * values

        def slopes(duals: NDArray) -> NDArray:
            new = operator.collect(duals).astype(columns.dtype, copy=False) @ columns
            return np.append((duals * values).sum(dtype=np.float64), new)

        return problem.less_gaps(total), slopes

    return evaluate


def _cost_of_block(cost_of_all: CoefCost, old: NDArray) -> CoefCost:
    """R as a function of the factor of the old coefficients, and of the new ones."""

    def cost(coefs: NDArray) -> tuple[float, NDArray]:
        value, slopes = cost_of_all(np.concatenate([coefs[0] * old, coefs[1:]]))
        return value, np.append(slopes[: len(old)] @ old, slopes[len(old) :])

    return cost


def _by_matrix(problem: Problem, directions: NDArray) -> Evaluate:
    def slopes(duals: NDArray) -> NDArray:
        images = problem.operator.scatter_matrix(duals) @ directions
        return np.einsum("dj,dj->j", directions, images)

    def evaluate(coefs: NDArray) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        return problem.margins(Metric(directions, coefs.astype(directions.dtype))), slopes

    return evaluate


def _is_bounded(problem: Problem, evaluate: Evaluate, cost: CoefCost, coefs: NDArray) -> bool:
    """Whether the objective grows in the end as the coefficients are multiplied."""
    if math.isfinite(problem.loss.lower):
        return True
    values = problem.plus_gaps(evaluate(coefs)[0])
    largest = float(np.abs(values).max())
    if largest == 0:
        return True
    far = FAR / largest
    duals = problem.duals(values.dtype.type(far) * values)
    return float(duals.astype(np.float64) @ values) <= cost(far * coefs)[0] / far
