"""A loss that returns NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric import Comparisons, Logistic, Loss, boost


class Failing(Loss):
    """The logistic loss; `method` returns NaN after `good` calls, once or from then on.

    Only the last dual is NaN.
    """

    def __init__(self, method: str = "duals", good: float = math.inf, once: bool = False) -> None:
        self.method, self.good, self.once = method, good, once
        self.calls = 0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return math.nan if self._fails("value") else Logistic().value(margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = Logistic().duals(margins, weights)
        if self._fails("duals"):
            duals[-1] = np.nan
        return duals

    def _fails(self, method: str) -> bool:
        if method != self.method:
            return False
        self.calls += 1
        return self.calls == self.good + 1 if self.once else self.calls > self.good


def calls_of(method: str, X: NDArray, comparisons: Comparisons, **options: Any) -> int:
    """The number of times that a fit calls a method of its loss."""
    counting = Failing(method)
    boost(X, comparisons, counting, **options)
    return counting.calls
