"""The stage-wise step in few rounds: many coefficients of a direction are tried at a time.

As in `stagewise`, the coefficient is the root of the balance log P(w) − log N(w) of gain and cost,
which is close to a straight line. A round evaluates several w at once. The root of the polynomial
w(balance) through the values nearest to 0 is the next estimate, and the difference to the root of
the secant says how good it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boostmetric.stagewise import CAP, ENOUGH, balance

ROUNDS = 3
"""Most rounds of a search."""

AROUND = (0.5, 1.0, 2.0, 4.0)
"""Where a guess is tried, in units of it."""

NEAR = 1e-3
"""An estimate that is wrong by less of itself is tried alone."""

NEAREST = 5
"""Points that the polynomial goes through, at most."""

GRID = 10
"""Coefficients of a round that looks for a root of which little is known, each twice the last."""

WIDE = 8.0
"""Little is known where the ends of the bracket are farther apart."""


class Point(NamedTuple):
    """What is known of a coefficient; `at_zero` are Σ|u| and the last two of `Block.slopes`."""

    balance: float
    value: float
    n_violated: int
    gain: float
    cost: float
    at_zero: list[float]


@dataclass(frozen=True)
class Found:
    """A coefficient, 0 where the direction does not help, and the search for it.

    `value` and `n_violated` are the loss and the number of violated comparisons there; `bounded` is
    False where the objective falls for ever along the direction.
    """

    coef: float
    value: float
    n_violated: int
    n_evaluations: int
    bounded: bool


def search(
    sums_at: Callable[[NDArray], NDArray],
    price: float,
    curvature: float,
    guess: float | None,
    precision: float = 1e-10,
) -> Found:
    """The root w > 0 of Σ_r h_r·u_r(w) = price + curvature·w, in at most three rounds.

    Parameters
    ----------
    sums_at : from coefficients (k,) to what `blocks.merged` returns of them; one round
    price, curvature : the slope of the regulariser along the direction
    guess : about what is expected, or None
    precision : relative error with which a coefficient is exact

    Returns
    -------
    Found, the best of those that were tried
    """
    tried: dict[float, Point] = {}

    def evaluate(coefs: Sequence[float]) -> None:
        for w, sums in zip(coefs, sums_at(np.array(coefs)).tolist(), strict=True):
            value, n_violated, net, absolute, *at_zero = sums
            gain = (absolute + net) / 2
            cost = price + curvature * w + max(gain - net, 0.0)
            tried[w] = Point(balance(gain, cost), value, int(n_violated), gain, cost, at_zero)

    def found(coef: float, bounded: bool = True) -> Found:
        return Found(coef, tried[coef].value, tried[coef].n_violated, len(tried), bounded)

    evaluate([0.0, *(factor * guess for factor in AROUND)] if guess else [0.0])
    _, _, _, gain, cost, (size, rises, falls) = tried[0.0]
    if gain <= cost:  # λ_max exceeds alpha by less than rounding
        return found(0.0)
    unit = size / (gain - cost)
    cap = CAP * unit
    rate = rises / gain + (falls / cost if cost > 0 else 0.0)
    balance_at_zero = tried[0.0].balance
    start = min(cap, balance_at_zero / rate if math.isfinite(balance_at_zero) else 1 / rate)
    for _ in range(ROUNDS - 1):
        coefs = _next({w: point.balance for w, point in tried.items()}, start, cap, precision)
        if not coefs:
            break
        evaluate(coefs)
    if tried[max(tried)].balance > 0 and max(tried) >= cap:
        enough = ENOUGH * unit
        evaluate([enough])
        return found(enough, bounded=False)
    helpful = [w for w in tried if w > 0 and math.isfinite(tried[w].balance)]
    best = min(helpful, key=lambda w: abs(tried[w].balance), default=0.0)
    return found(best)


def _next(tried: dict[float, float], start: float, cap: float, precision: float) -> list[float]:
    """The coefficients of the next round; none where the root is known."""
    low, high = _bracket(tried)
    if high > WIDE * low:
        first = max(low, min(start, high) / 8)
        grid = [first * 2**k for k in range(low == first, GRID + (low == first))]
        return [*(w for w in grid if w < min(high, cap)), *([cap] if math.isinf(high) else [])]
    root, doubt = _root(tried)
    if min(abs(root - w) for w in tried) <= precision * root or high - low <= precision * root:
        return []
    if doubt < NEAR * root:
        return [root]
    spread = min(doubt, (high - low) / 4)
    return [w for w in (root - spread, root, root + spread) if low < w < high]


def _bracket(tried: dict[float, float]) -> tuple[float, float]:
    """The largest w before the root, and the smallest after it, or infinity.

    Where both sides have underflowed to nothing, the root is passed.
    """
    low = max(w for w, b in tried.items() if b > 0)
    return low, min((w for w, b in tried.items() if not b > 0), default=math.inf)


def _root(tried: dict[float, float]) -> tuple[float, float]:
    """An estimate of the root, and by how much it may be wrong.

    >>> estimate, doubt = _root({0.0: 3.0, 1.0: 1.0, 2.0: -1.0})
    >>> estimate, doubt < 1e-12
    (1.5, True)
    """
    low, high = _bracket(tried)
    if math.isinf(high):
        return low, low
    finite = sorted(
        ((w, b) for w, b in tried.items() if math.isfinite(b)), key=lambda point: abs(point[1])
    )
    kept: list[tuple[float, float]] = []
    for w, b in finite:
        if all(b != other for _, other in kept) and len(kept) < NEAREST:
            kept.append((w, b))
    if not math.isfinite(tried[high]) or not math.isfinite(tried[low]) or len(kept) < 2:
        return (low + high) / 2, (high - low) / 2
    a, b = tried[low], tried[high]
    secant = low + (high - low) * a / (a - b)
    estimate = _inverse(kept)
    if not low < estimate < high:
        return secant, (high - low) / 4
    fewer = _inverse(kept[:-1]) if len(kept) > 2 else secant
    return estimate, abs(estimate - fewer)


def _inverse(points: Sequence[tuple[float, float]]) -> float:
    """w(0) of the polynomial w(b) through points (w, b), by Neville's scheme."""
    values = [w for w, _ in points]
    places = [b for _, b in points]
    for order in range(1, len(points)):
        for i in range(len(points) - order):
            x0, x1 = places[i], places[i + order]
            values[i] = (x0 * values[i + 1] - x1 * values[i]) / (x0 - x1)
    return values[0]
