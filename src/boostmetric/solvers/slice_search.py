"""The coefficients of several directions together, by L-BFGS-B on a slice of the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from boostmetric.problem import Objective

MAX_EVALUATIONS = 100
"""Evaluations of value and gradient in one search, at most."""

FAR = 1e8
"""Size of ⟨A_r, M⟩ at which the slope of the objective shows whether it is bounded below."""

NEGLIGIBLE = 1e-12
"""Coefficients that contribute less than this share of the largest contribution to the margins are
rounding errors and are set to 0. Without this, the rank would depend on the processor."""


@dataclass(frozen=True, eq=False)
class SliceMinimum:
    """The minimum of the objective at s·M + Σ_j w_j·v_j·v_jᵀ over a box.

    `scale` is s, `coefs` are the w_j, and `value` is the objective there.
    """

    scale: float
    coefs: NDArray
    value: float
    n_evaluations: int


def best_on_slice(
    objective: Objective,
    directions: NDArray,
    start: NDArray,
    upper: NDArray,
    sizes: NDArray,
    tolerances: NDArray,
    free_scale: bool,
) -> SliceMinimum:
    """Minimize over 0 ≤ w ≤ upper and, if `free_scale`, 0 ≤ s ≤ 1, from w = start and s = 1.

    Otherwise s = 0: the directions are all that M is made of. The search ends when no projected
    slope exceeds its tolerance.

    Parameters
    ----------
    directions : array of shape (D, k)
    start, upper : arrays of shape (k,)
    sizes : array of shape (k,), the typical responses to the directions; the search is in units of
        their inverses, changes of w that matter about equally
    tolerances : array of shape (1 + k,), for s and w
    """
    evaluate = objective.on_slice(directions, free_scale)
    units = np.append(1.0, 1 / sizes)
    if not free_scale:
        units, tolerances = units[1:], tolerances[1:]
    highest = (np.append(1.0, upper) if free_scale else upper) / units
    # On separable comparisons the exponential loss decreases forever; coefficients times squared
    # differences, which are at most 4·D, must not overflow in float32. (A finite bound for L-BFGS-B
    # would change its path on all other problems.)
    limit = float(np.finfo(objective.dtype).max) / 1e6
    last = SliceMinimum(1.0, start, math.nan, 0)
    ascent = np.zeros(len(units))

    def function(z: NDArray) -> tuple[float, NDArray]:
        nonlocal last, ascent
        point = np.minimum(z * units, limit)
        scale, coefs = (float(point[0]), point[1:]) if free_scale else (0.0, point)
        value, gradient = evaluate(scale, coefs)
        last = SliceMinimum(scale, coefs, value, last.n_evaluations + 1)
        ascent = gradient if free_scale else gradient[1:]
        return value, units * ascent

    def stop(z: NDArray) -> None:
        # L-BFGS-B's own rule would mistake a small coefficient for a small slope.
        down, up = np.where(z > 0, ascent, 0), np.where(z < highest, -ascent, 0)
        if (np.maximum(down, up) <= tolerances).all():
            raise StopIteration

    begin = np.append(1.0, start) if free_scale else start
    found = minimize(
        function,
        begin / units,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, high) for high in highest],
        callback=stop,
        options={"maxcor": 20, "maxfun": MAX_EVALUATIONS, "ftol": 1e-15, "gtol": 0.0},
    )
    point = np.minimum(found.x * units, limit)
    contributions = (point[1:] if free_scale else point) * sizes
    small = contributions <= NEGLIGIBLE * contributions.max(initial=0.0)
    point[(1 if free_scale else 0) :][small] = 0
    ended_here = np.array_equal(
        point, np.append(last.scale, last.coefs) if free_scale else last.coefs
    )
    if not ended_here:  # the search ended at an earlier point, or coefficients were dropped
        function(point / units)
    return last


def is_bounded(objective: Objective, directions: NDArray, coefs: NDArray) -> bool:
    """Whether the objective grows in the end as Σ_j w_j·v_j·v_jᵀ is multiplied by a number."""
    if math.isfinite(objective.loss.lower):
        return True
    largest = objective.largest_value(directions, 0.0, coefs)
    if largest == 0:
        return True
    far = FAR / largest
    _, gradient = objective.on_slice(directions, False)(0.0, far * coefs)
    return float(gradient[1:] @ coefs) >= 0
