"""The coefficient of one new direction, all others fixed (Algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boostmetric.problem import Objective

MAX_COEF = 1e8
"""Largest coefficient tried, in units of the one that adds 1 to the average margin."""

UNBOUNDED_GAIN = -math.log(np.finfo(np.float64).eps)
"""What an unbounded step adds to the average margin: the loss of a comparison that gains this much
falls by a factor that is lost in rounding."""

MAX_GROWTH = 8.0
"""How much farther the search goes at most while it has not passed the root."""

MAX_EVALUATIONS = 100
"""Evaluations of the duals in one search, at most; about six are usual."""


@dataclass(frozen=True)
class LineSearch:
    """A coefficient, and the change of the objective that it leads to.

    `is_bounded` is False if the objective falls forever along the direction; the coefficient is
    then one that adds `UNBOUNDED_GAIN` to the average margin, in the weights of the duals.
    """

    coef: float
    change: float
    n_evaluations: int
    is_bounded: bool


def line_search(objective: Objective, direction: NDArray) -> LineSearch:
    """The root w > 0 of Σ_r h_r·u_r(w) = p + q·w, the minimum along a direction.

    h are the responses to the direction, u(w) the duals at the margins ρ + w·h, and p + q·w is the
    slope of the regularizer; for the trace it is alpha (EQ:w and EQ:w2). The left side falls in w,
    and exceeds p at w = 0 if the direction lowers the objective. Split it by sign into a gain
    P(w) = Σ (u·h)₊ and a cost N(w) = p + q·w + Σ (u·h)₋: the root is that of log P − log N, which
    is close to a straight line if the duals decay exponentially, so secant steps (inside a bracket,
    halved where they fail) need few evaluations where P − N itself would need many.

    The relative error of the coefficient is about 1e-10 (float64) or 1e-6 (float32). It is 0 if
    the step would be lost in rounding.
    """
    precision = max(1e-10, 8 * float(np.finfo(objective.dtype).eps))
    price, curvature = objective.regularizer.along(objective.M, direction)

    def evaluate(w: float) -> tuple[float, float, NDArray]:
        sums = objective.along(direction, w)
        gain = (sums[2] + sums[1]) / 2
        return gain, price + curvature * w + max(gain - sums[1], 0.0), sums

    gain, cost, first = evaluate(0.0)
    if gain <= cost:  # λ_max exceeds the threshold by less than rounding
        return LineSearch(0.0, 0.0, 0, is_bounded=True)
    # As if u decayed like exp(−w·h): exact for the exponential loss, of the right size for others.
    rate = first[4] / gain + (first[5] / cost if cost > 0 else 0.0)
    unit = first[3] / (gain - cost)
    cap = MAX_COEF * unit
    low, high = 0.0, math.inf
    last, last_balance = 0.0, balance(gain, cost)
    w = min(cap, last_balance / rate if math.isfinite(last_balance) else 1 / rate)
    for n_evaluations in range(1, MAX_EVALUATIONS + 1):
        gain, cost, sums = evaluate(w)
        now = balance(gain, cost)
        if now > 0:
            low = w
        else:  # also if both sides have underflowed to zero
            high = w
        if low >= cap:
            w = UNBOUNDED_GAIN * unit
            change = evaluate(w)[2][0] - first[0] + w * (price + curvature * w / 2)
            return LineSearch(w, change, n_evaluations + 1, is_bounded=False)
        proposal = secant(last, last_balance, w, now)
        last, last_balance = w, now
        if abs(proposal - w) <= precision * w or high - low <= precision * w:
            break
        if not low < proposal < min(high, MAX_GROWTH * w):
            proposal = (low + high) / 2 if math.isfinite(high) else MAX_GROWTH * w
        w = min(proposal, cap)
    change = float(sums[0] - first[0] + last * (price + curvature * last / 2))
    return LineSearch(last if change < 0 else 0.0, change, n_evaluations, is_bounded=True)


def secant(x0: float, y0: float, x1: float, y1: float) -> float:
    """The root of the line through two points; NaN, which no bracket holds, if there is none."""
    if not (math.isfinite(y0) and math.isfinite(y1)) or y0 == y1:
        return math.nan
    return x1 - y1 * (x1 - x0) / (y1 - y0)


def balance(gain: float, cost: float) -> float:
    """log(gain) − log(cost), infinite if one of them has underflowed, NaN if both have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log(gain) - np.log(cost))
