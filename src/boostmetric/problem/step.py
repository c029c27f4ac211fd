"""Steps, by which a metric changes, and the metric after several of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from boostmetric.metric import Metric

EPOCHS = count()
"""Numbers of epochs. Steps of one epoch follow on each other; no two sequences share a number."""


@dataclass(frozen=True, eq=False)
class Step:
    """M ← scale·M + Σ_j coefs_j·v_j·v_jᵀ; a scale of 0 replaces M.

    Parameters
    ----------
    directions : array of shape (D, k), unit columns
    coefs : array of shape (k,), nonnegative, in float64. A direction of coefficient 0 is not part
        of M, but stays in the step: sums round by the number of columns
    scale : factor of all earlier coefficients
    """

    directions: NDArray
    coefs: NDArray
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Sum:
    """M after the steps since it was last replaced, which began the epoch of this number.

    `matrix` is kept for a moderate number of features only, otherwise it is None.
    """

    n_features: int
    dtype: np.dtype
    epoch: int = field(default_factory=EPOCHS.__next__)
    steps: tuple[Step, ...] = ()
    trace: float = 0.0
    matrix: NDArray | None = None

    def after(self, step: Step) -> Sum:
        """M after one more step."""
        replaced = step.scale == 0
        matrix = self.matrix
        if matrix is not None:
            V = step.directions.astype(np.float64)
            added = (V * step.coefs) @ V.T
            matrix = added if replaced else step.scale * matrix + added
        return Sum(
            self.n_features,
            self.dtype,
            next(EPOCHS) if replaced else self.epoch,
            (step,) if replaced else (*self.steps, step),
            (0.0 if replaced else step.scale * self.trace) + float(step.coefs.sum()),
            matrix,
        )

    @cached_property
    def metric(self) -> Metric:
        """M as a metric, without directions of coefficient 0."""
        directions, coefs = [np.empty((self.n_features, 0), dtype=self.dtype)], np.empty(0)
        for step in self.steps:
            directions.append(step.directions)
            coefs = np.append(step.scale * coefs, step.coefs)
        used = coefs > 0
        # In this order in memory, whatever that of the parts: products round by it.
        columns = np.ascontiguousarray(np.column_stack(directions)[:, used])
        return Metric(columns, coefs[used])

    def times(self, V: NDArray) -> NDArray:
        """M·V, in float64."""
        if self.matrix is not None:
            return self.matrix @ V
        W = self.metric.directions
        return W @ (self.metric.coefs[:, None] * (W.T @ V))

    def quadratic(self, V: NDArray) -> NDArray:
        """v_jᵀMv_j for the columns of V, in float64."""
        return np.einsum("dj,dj->j", V.astype(np.float64), self.times(V.astype(np.float64)))

    @cached_property
    def squared_norm(self) -> float:
        """‖M‖²_F."""
        if self.matrix is not None:
            return float(np.sum(np.square(self.matrix)))
        W, w = self.metric.directions.astype(np.float64), self.metric.coefs
        return float(w @ np.square(W.T @ W) @ w)


@dataclass(frozen=True, eq=False)
class Position:
    """Where a block is to be: at the steps `first`, `first` + 1, … of an epoch."""

    epoch: int
    first: int
    steps: tuple[Step, ...]

    @property
    def last(self) -> int:
        """The number of steps of the epoch that end there."""
        return self.first + len(self.steps)
