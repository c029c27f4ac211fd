"""Coefficients of new directions: a line search for one, L-BFGS-B for several."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from boostmetric.problem import Evaluation, Objective

UNBOUNDED_GAIN = -math.log(np.finfo(np.float64).eps)
"""Increase of the average margin by a step along which the objective is unbounded below. It
multiplies the exponential loss by the machine epsilon, so a longer step would change nothing."""


@dataclass(frozen=True)
class LineSearch:
    """A coefficient and the change of the objective.

    `is_bounded` is False if the objective decreases without bound along the direction. The
    coefficient then adds `UNBOUNDED_GAIN` to the average margin, weighted by the duals.
    """

    coef: float
    change: float
    n_evaluations: int
    is_bounded: bool


def line_search(objective: Objective, direction: NDArray) -> LineSearch:
    """The root w > 0 of Σ_r h_r·u_r(w) = p + q·w, the minimum along a direction (Algorithm 2).

    h are the responses to the direction, u(w) the duals at the margins ρ + w·h, and p + q·w is the
    slope of the regularizer; for the trace it is alpha (EQ:w and EQ:w2). The left side decreases in
    w, and exceeds p at w = 0 if the direction lowers the objective. Split it by sign into a gain
    P(w) = Σ (u·h)₊ and a cost N(w) = p + q·w + Σ (u·h)₋. The root is that of log P − log N, which
    is nearly linear if the duals decay exponentially, so secant steps, safeguarded by bisection,
    need about six evaluations; P − N itself would need many.

    The relative error of the coefficient is about 1e-10 (float64) or 1e-6 (float32). It is 0 if
    the step would be lost in rounding.
    """
    precision = max(1e-10, 8 * float(np.finfo(objective.dtype).eps))
    max_evaluations, max_growth = 100, 8.0  # growth of w per step before the root is bracketed
    price, curvature = objective.regularizer.along(objective.M, direction)

    def evaluate(w: float) -> tuple[float, float, NDArray]:
        sums = objective.along(direction, w)
        gain = (sums[2] + sums[1]) / 2
        return gain, price + curvature * w + max(gain - sums[1], 0.0), sums

    # 1) the first trial
    gain, cost, first = evaluate(0.0)
    if gain <= cost:  # λ_max exceeds the threshold by less than rounding
        return LineSearch(0.0, 0.0, 0, is_bounded=True)
    # As if u decayed like exp(−w·h): exact for the exponential loss, of the right size for others.
    rate = first[4] / gain + (first[5] / cost if cost > 0 else 0.0)
    unit = first[3] / (gain - cost)  # adds 1 to the average margin
    cap = 1e8 * unit  # a larger coefficient means that the objective is unbounded below
    low, high = 0.0, math.inf
    last, last_balance = 0.0, log_ratio(gain, cost)
    w = min(cap, last_balance / rate if math.isfinite(last_balance) else 1 / rate)
    for n_evaluations in range(1, max_evaluations + 1):
        # 2) update the bracket
        gain, cost, sums = evaluate(w)
        balance = log_ratio(gain, cost)
        if balance > 0:
            low = w
        else:  # also if both sides have underflowed to zero
            high = w
        if low >= cap:
            w = UNBOUNDED_GAIN * unit
            change = evaluate(w)[2][0] - first[0] + w * (price + curvature * w / 2)
            return LineSearch(w, change, n_evaluations + 1, is_bounded=False)
        # 3) secant step, or bisection if it is undefined (NaN) or leaves the bracket
        proposal = math.nan
        if math.isfinite(last_balance) and math.isfinite(balance) and last_balance != balance:
            proposal = w - balance * (w - last) / (balance - last_balance)
        last, last_balance = w, balance
        if abs(proposal - w) <= precision * w or high - low <= precision * w:
            break
        if not low < proposal < min(high, max_growth * w):
            proposal = (low + high) / 2 if math.isfinite(high) else max_growth * w
        w = min(proposal, cap)
    change = float(sums[0] - first[0] + last * (price + curvature * last / 2))
    return LineSearch(last if change < 0 else 0.0, change, n_evaluations, is_bounded=True)


def log_ratio(gain: float, cost: float) -> float:
    """log(gain) − log(cost): infinite if one of them has underflowed, NaN if both have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log(gain) - np.log(cost))


@dataclass(frozen=True, eq=False)
class SliceMinimum:
    """The minimum of the objective at s·M + Σ_j w_j·v_j·v_jᵀ: `scale` is s, `coefs` are the w_j.

    `is_inside` is False if a coefficient is at its upper bound.
    """

    scale: float
    coefs: NDArray
    value: float
    n_evaluations: int
    is_inside: bool = True


def best_on_slice(
    objective: Objective,
    directions: NDArray,
    start: NDArray,
    upper: NDArray,
    sizes: NDArray,
    tolerances: NDArray,
    free_scale: bool,
    value_unit: float = 1.0,
    max_evaluations: int = 100,
) -> SliceMinimum:
    """Minimize over 0 ≤ w ≤ upper and, if `free_scale`, 0 ≤ s ≤ 1, from w = start and s = 1.

    Otherwise s = 0: M consists of these directions only. The search ends when no projected slope
    exceeds its tolerance.

    Parameters
    ----------
    directions : array of shape (D, k)
    start, upper : arrays of shape (k,)
    sizes : array of shape (k,), the typical effects of the directions. The search uses their
        inverses as units, so that unit changes have similar effects
    tolerances : array of shape (1 + k,), for s and w
    value_unit : unit of the objective in the search. The first step of L-BFGS-B is the gradient,
        and so depends on it
    max_evaluations : end the search after about as many evaluations
    """
    evaluate = objective.on_slice(directions, free_scale)
    first = 0 if free_scale else 1  # the variables are (s, w) or w
    units = np.append(1.0, 1 / sizes)[first:]
    highest = np.append(1.0, upper)[first:] / units
    # On separable comparisons the exponential loss has no minimum; coefficients times squared
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
        is_inside = bool((coefs < 0.99 * upper).all())
        last = SliceMinimum(scale, coefs, value, last.n_evaluations + 1, is_inside)
        ascent = gradient[first:]
        return value / value_unit, units * ascent / value_unit

    def stop(z: NDArray) -> None:
        # The projected gradient of L-BFGS-B is small for small coefficients, whatever the slope.
        down, up = np.where(z > 0, ascent, 0), np.where(z < highest, -ascent, 0)
        if (np.maximum(down, up) <= tolerances[first:]).all():
            raise StopIteration

    minimum = minimize(
        function,
        np.append(1.0, start)[first:] / units,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, high) for high in highest],
        callback=stop,
        options={"maxcor": 20, "maxfun": max_evaluations, "ftol": 1e-15, "gtol": 0.0},
    )
    point = np.minimum(minimum.x * units, limit)
    # Coefficients whose contribution to the margins is negligible are rounding errors; with them
    # the rank would depend on the processor.
    contributions = point[1 - first :] * sizes
    point[1 - first :][contributions <= 1e-12 * contributions.max(initial=0.0)] = 0
    if not np.array_equal(point, np.append(last.scale, last.coefs)[first:]):
        # The search ended at an earlier point, or coefficients were dropped.
        function(point / units)
    return last


def best_batch(
    objective: Objective, now: Evaluation, new: NDArray, accuracy: float
) -> tuple[NDArray, SliceMinimum] | None:
    """Coefficients of new directions, and a common factor of all older ones.

    Returns the directions without null directions, and the minimum; None if M = 0 and there is no
    new direction. `accuracy` is the slope that may remain.
    """
    new, start, sizes = without_null_directions(objective, now, new, np.zeros(new.shape[1]))
    if not new.size and not objective.M.steps:
        return None
    minimum = best_on_slice(
        objective,
        new,
        start,
        # On separable comparisons the best coefficients may be infinite.
        UNBOUNDED_GAIN * max(1.0, now.largest) / sizes,
        sizes,
        accuracy * np.append(objective.M.trace, np.ones(new.shape[1])),
        free_scale=True,
        # The objective per comparison, so that the scale of the weights has no effect.
        value_unit=now.dual_sum or 1.0,
    )
    return new, minimum


def without_null_directions(
    objective: Objective, now: Evaluation, directions: NDArray, coefs: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Directions with responses above rounding level, their coefficients and typical effects.

    The others are null directions of the data: constant or linearly dependent features. They are
    kept if the regularizer shrinks M toward a multiple of the identity, not toward 0.

    The effect of a direction is its typical response, at least the root of the regularizer's
    curvature per dual: both are the same multiple of the root of a second derivative. A search in
    units of the responses alone would fail along directions with tiny responses.
    """
    if not directions.shape[1]:
        return directions, coefs, np.empty(0)
    sizes = objective.response_sizes(directions)
    kept = sizes > 8 * np.finfo(objective.dtype).eps * sizes.max()
    if objective.regularizer.multiple > 0:
        kept[:] = True
        sizes = np.maximum(sizes, 1e-6 * sizes.max())  # if R has no curvature
    if now.dual_sum > 0:
        sizes = np.hypot(sizes, math.sqrt(objective.regularizer.curvature / now.dual_sum))
    return np.ascontiguousarray(directions[:, kept]), coefs[kept], sizes[kept]


def is_bounded(objective: Objective, directions: NDArray, coefs: NDArray) -> bool:
    """Whether the objective at t·Σ_j w_j·v_j·v_jᵀ increases for large t."""
    if math.isfinite(objective.loss.lower):
        return True
    largest = objective.largest_value(directions, 0.0, coefs)
    if largest == 0:
        return True
    far = 1e8 / largest  # the largest ⟨A_r, M⟩ is 1e8; the slope there decides
    _, gradient = objective.on_slice(directions, False)(0.0, far * coefs)
    return float(gradient[1:] @ coefs) >= 0
