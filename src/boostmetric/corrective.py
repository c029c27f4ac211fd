"""The totally corrective step: the coefficients of all directions together (Algorithm 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from boostmetric.metric import Metric
from boostmetric.operators import Operator
from boostmetric.problem import Problem

COLUMNS_UP_TO = 4
"""With more directions than this times D, margins are computed through M and not by direction."""

MAX_ENTRIES = 1 << 26
"""Likewise if there were more measures than this (512 MB in float64)."""

MAX_EVALUATIONS = 100
"""Evaluations of value and gradient in one correction, at most."""

FAR = 1e8
"""A multiple of M at which the slope of the objective tells whether it is bounded below."""


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
    """Minimise F(ρ) + R(M) over the coefficients w ≥ 0 of given directions, by L-BFGS-B.

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
    scale = _scale(problem.operator, directions, columns)
    n_evaluations, ascent = 0, np.zeros(len(coefs))

    def objective(z: NDArray) -> tuple[float, NDArray]:
        nonlocal n_evaluations, ascent
        n_evaluations += 1
        margins, slopes = evaluate(z * scale)
        price, prices = cost(z * scale)
        ascent = prices - slopes(problem.duals(margins))
        return problem.value(margins) + price, scale * ascent

    def stop(z: NDArray) -> None:
        # L-BFGS-B's own rule would take a small coefficient for a small slope.
        if np.where(z > 0, np.abs(ascent), -ascent).max() <= accuracy:
            raise StopIteration

    found = minimize(
        objective,
        coefs / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(coefs),
        callback=stop,
        options={"maxcor": 20, "maxfun": MAX_EVALUATIONS, "ftol": 1e-15, "gtol": 0.0},
    )
    coefs = found.x * scale
    kept = coefs > 0
    margins, _ = evaluate(coefs)
    return Correction(
        directions=directions[:, kept],
        coefs=coefs[kept],
        margins=margins,
        duals=problem.duals(margins),
        columns=None if columns is None else columns[:, kept],
        n_evaluations=n_evaluations,
        bounded=_is_bounded(problem, margins, cost(FAR * coefs)[0] / FAR),
    )


Evaluate = Callable[[NDArray], tuple[NDArray, Callable[[NDArray], NDArray]]]
"""From coefficients to margins, and to the map from duals to the slopes vᵀÂv of the directions."""


def _scale(operator: Operator, directions: NDArray, columns: NDArray | None) -> NDArray:
    """Coefficients of the directions that change what is measured by about 1."""
    if columns is not None:
        sizes = np.sqrt(np.einsum("pj,pj->j", columns, columns) / len(columns))
    else:
        spread = operator.spread(np.ones(operator.n_matrices, dtype=operator.dtype))
        sizes = np.einsum("dj,dj->j", directions, spread @ directions) / operator.n_matrices
    return 1 / np.maximum(sizes.astype(np.float64), np.finfo(operator.dtype).tiny)


def _columns(operator: Operator, directions: NDArray, known: NDArray | None) -> NDArray | None:
    """The measures (P, J) of the directions, those that are known not computed again."""
    n_known = 0 if known is None else known.shape[1]
    n_directions = directions.shape[1]
    if n_directions > min(COLUMNS_UP_TO * operator.n_features, MAX_ENTRIES // operator.n_measures):
        return None
    new = [operator.measure(direction) for direction in directions[:, n_known:].T]
    return np.column_stack(new if known is None else [known, *new])


def _by_column(problem: Problem, columns: NDArray) -> Evaluate:
    operator = problem.operator

    def evaluate(coefs: NDArray) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        measures = columns @ coefs.astype(columns.dtype)
        margins = problem.less_gaps(operator.expand(measures))
        return margins, lambda duals: operator.collect(duals).astype(columns.dtype) @ columns

    return evaluate


def _by_matrix(problem: Problem, directions: NDArray) -> Evaluate:
    def slopes(duals: NDArray) -> NDArray:
        images = problem.operator.scatter_matrix(duals) @ directions
        return np.einsum("dj,dj->j", directions, images)

    def evaluate(coefs: NDArray) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        return problem.margins(Metric(directions, coefs.astype(directions.dtype))), slopes

    return evaluate


def _is_bounded(problem: Problem, margins: NDArray, slope: float) -> bool:
    """Whether the objective grows in the end as M is multiplied: R's slope against Σ u·⟨A, M⟩."""
    values = margins if problem.gaps is None else margins + problem.gaps
    duals = problem.duals(margins.dtype.type(FAR) * values)
    return float(duals.astype(np.float64) @ values) <= slope
