"""The stage-wise step: the coefficient of one new direction, all others kept (Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CAP = 1e8
"""Largest coefficient looked at, in units of the one that adds 1 to the average margin."""

ENOUGH = -math.log(np.finfo(np.float64).eps)
"""What an unbounded step adds to the average margin: the loss of a comparison that gains it falls
by a factor that is lost in rounding."""

GROWTH = 8.0
"""How much farther the search goes at most while it has not passed the root."""

MAX_EVALUATIONS = 100
"""Bound on the evaluations of the duals in one search; about six are usual."""


@dataclass(frozen=True, eq=False)
class Step:
    """A new coefficient, with the margins and duals that it leads to.

    `bounded` is False where the objective falls for ever along the direction; the coefficient is
    then one that adds `ENOUGH` to the average margin, in the weights of the duals.
    """

    coef: float
    margins: NDArray
    duals: NDArray
    n_evaluations: int
    bounded: bool


def line_search(
    duals_at: Callable[[NDArray], NDArray],
    margins: NDArray,
    duals: NDArray,
    responses: NDArray,
    price: float,
    curvature: float = 0.0,
) -> Step:
    """The root w > 0 of Σ_r h_r·u_r(w) = price + curvature·w, the minimum along a direction.

    u(w) are the duals at the margins ρ + w·h; for the trace, the right side is alpha (EQ:w and
    EQ:w2). The sum falls in w, and exceeds the price at w = 0 because only directions that help are
    tried. Split it by sign into a gain P(w) = Σ (u·h)₊ and a cost N(w) = price + … + Σ (u·h)₋: the
    root is that of log P − log N, which is close to a straight line when the duals decay
    exponentially, so secant steps (inside a bracket, halved where they fail) need few evaluations
    where P − N itself would need many.

    Parameters
    ----------
    duals_at : the duals as a function of the margins
    margins, duals, responses : arrays of shape (m,), the duals those at the margins
    price, curvature : the slope of the regulariser along the direction

    Returns
    -------
    Step, at the last point evaluated; its coefficient has a relative error of about 1e-10
    (float64) or 1e-6 (float32). It is 0 where the step is lost in rounding
    """
    precision = max(1e-10, 8 * float(np.finfo(margins.dtype).eps))

    def gain_and_cost(u: NDArray, w: float) -> tuple[float, float]:
        slopes = u * responses
        net = float(slopes.sum(dtype=np.float64))
        gain = (float(np.abs(slopes, out=slopes).sum(dtype=np.float64)) + net) / 2
        return gain, price + curvature * w + max(gain - net, 0.0)

    gain, cost = gain_and_cost(duals, 0.0)
    if gain <= cost:  # λ_max exceeds alpha by less than rounding
        return Step(0.0, margins, duals, 0, bounded=True)
    # As if u decayed like exp(−w·h): exact for the exponential loss, of the right size for others.
    sizes = np.abs(duals)
    rises = float((sizes * responses * np.maximum(responses, 0)).sum(dtype=np.float64))
    falls = float((sizes * responses * np.minimum(responses, 0)).sum(dtype=np.float64))
    rate = rises / gain + (falls / cost if cost > 0 else 0.0)
    unit = float(sizes.sum(dtype=np.float64)) / (gain - cost)
    cap = CAP * unit
    low, high = 0.0, math.inf
    last, last_balance = 0.0, balance(gain, cost)
    w = min(cap, last_balance / rate if math.isfinite(last_balance) else 1 / rate)
    for n_evaluations in range(1, MAX_EVALUATIONS + 1):
        new_margins = margins + margins.dtype.type(w) * responses
        new_duals = duals_at(new_margins)
        now = balance(*gain_and_cost(new_duals, w))
        if now > 0:
            low = w
        else:  # also where both sides have underflowed to zero
            high = w
        if low >= cap:
            w = ENOUGH * unit
            new_margins = margins + margins.dtype.type(w) * responses
            new_duals = duals_at(new_margins)
            return Step(w, new_margins, new_duals, n_evaluations + 1, bounded=False)
        proposal = _secant(last, last_balance, w, now)
        last, last_balance = w, now
        if abs(proposal - w) <= precision * w or high - low <= precision * w:
            break
        if not low < proposal < min(high, GROWTH * w):
            proposal = (low + high) / 2 if math.isfinite(high) else GROWTH * w
        w = min(proposal, cap)
    if np.array_equal(new_margins, margins):
        return Step(0.0, margins, duals, n_evaluations, bounded=True)
    return Step(w, new_margins, new_duals, n_evaluations, bounded=True)


def _secant(x0: float, y0: float, x1: float, y1: float) -> float:
    """The root of the line through two points; NaN, which no bracket holds, where there is none."""
    if not (math.isfinite(y0) and math.isfinite(y1)) or y0 == y1:
        return math.nan
    return x1 - y1 * (x1 - x0) / (y1 - y0)


def balance(gain: float, cost: float) -> float:
    """log(gain) − log(cost), infinite where one of them has underflowed, NaN where both have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log(gain) - np.log(cost))
